"""Checks a call right where it happens, on its own objects, in a forked copy of the process.

For calls whose arguments cannot be written down: closures, modules with state, objects. Aliasing between arguments
and modules stays intact; low-precision tensors are upcast in place. The run itself only waits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

from gradbot import codec
from gradbot.model import Case, CaseResult, CheckSettings, Crash, InputSource, Outcome
from gradbot.record.assumed import Assumption, require_grad
from gradbot.record.signature import signature, wants_grad
from gradbot.record.spool import InPlace

SECONDS = 60.0

ASSUMED_PER_TARGET = 2
"""Checks of calls of which no input requires grad; they count only where no other call of the target is seen."""


def checker(
    folder: Path, *, seconds: float = SECONDS, limit_per_target: int = 8, seconds_per_target: float = 2 * SECONDS
) -> InPlace:
    """A function that checks calls on the spot and writes each `CaseResult` to `folder` as `*.result.json`.

    The suite waits meanwhile, so no target gets more than `limit_per_target` checks or about `seconds_per_target`.
    """
    counts: dict[tuple[str, bool], int] = {}
    spent: dict[tuple[str, bool], float] = {}

    def check(target: str, cls: type | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assumed = not wants_grad(signature(args, kwargs))
        key, limit = (target, assumed), ASSUMED_PER_TARGET if assumed else limit_per_target
        index, start = counts.get(key, 0), time.monotonic()
        if index >= limit or spent.get(key, 0.0) >= seconds_per_target or not hasattr(os, "fork"):
            return
        counts[key] = index + 1
        case = _case(target, index, assumed=assumed)
        path = folder / f"{uuid.uuid4().hex}.result.json"
        result = _attempt(case, cls, args, kwargs, path, seconds, widen=True)
        if result.outcome in (Outcome.ERRORED, Outcome.SKIPPED) or result.reason == "user_error":
            # Not every tensor that a call uses is within reach, and float64 may meet float32: as it was, then.
            again = _attempt(_as_called(case, args, kwargs), cls, args, kwargs, path, seconds, widen=False)
            result = again if again.outcome is not Outcome.ERRORED else result
        path.write_text(codec.dumps(result), encoding="utf-8")
        spent[key] = spent.get(key, 0.0) + time.monotonic() - start

    return check


def _case(target: str, index: int, *, assumed: bool) -> Case:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    name = f"in-place-{'assumed-' if assumed else ''}{index}"
    return Case(
        id=f"{target}[{name}]cpu:float64",
        target=target,
        name=name,
        source=InputSource.RECORDED,
        reference=f"in_place:{test}#{index}",
        settings=CheckSettings(),
        test_id=test,
    )


def _as_called(case: Case, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Case:
    """The case in the dtype that the call itself has."""
    dtypes = [str(each.dtype).removeprefix("torch.") for each in _tensors((args, kwargs), set()) if each.requires_grad]
    dtype = dtypes[0] if dtypes else case.dtype
    return dataclasses.replace(case, dtype=dtype, id=f"{case.target}[{case.name}]cpu:{dtype}")


def _attempt(
    case: Case,
    cls: type | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    path: Path,
    seconds: float,
    *,
    widen: bool,
) -> CaseResult:
    dead = _forked(lambda: _checked(case, cls, args, kwargs, widen=widen), case, path, seconds)
    return codec.loads(path.read_text(encoding="utf-8"), CaseResult) if dead is None else dead


def _forked(work: Callable[[], CaseResult], case: Case, path: Path, seconds: float) -> CaseResult | None:
    """Run `work` in a fork that writes `path`; returns a result where the fork died before it could."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            torch.set_num_threads(1)
            path.write_text(codec.dumps(work()), encoding="utf-8")
            code = 0
        except BaseException as error:  # noqa: BLE001  whatever it was, this copy of the process must not go on
            crash = Crash(cause="exception", stage="in place", message=f"{type(error).__name__}: {error}"[:500])
            path.write_text(codec.dumps(CaseResult(case=case, outcome=Outcome.ERRORED, crash=crash)), encoding="utf-8")
            code = 0
        finally:
            os._exit(code)
    return _wait(child, case, seconds)


def _wait(child: int, case: Case, seconds: float) -> CaseResult | None:
    try:
        status = _status(child, seconds)
    except BaseException:  # an interrupt of the suite: the fork is a process group of its own and would go on
        _stop(child)
        raise
    if status is None:
        _stop(child)
        return CaseResult(case=case, outcome=Outcome.TIMED_OUT, crash=Crash(cause="timeout", limit=f"{seconds:g} s"))
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return None
    if code < 0:
        crash = Crash(cause="signal", signal=signal.Signals(-code).name)
    else:
        crash = Crash(cause="exit", exit_code=code)
    return CaseResult(case=case, outcome=Outcome.CRASHED, crash=crash)


def _status(child: int, seconds: float) -> int | None:
    """The wait status of the fork; None where it is still running after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    return None


def _stop(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it has started itself
    os.waitpid(child, 0)


def _checked(case: Case, cls: type | None, args: tuple[Any, ...], kwargs: dict[str, Any], *, widen: bool) -> CaseResult:
    from gradbot.record.symmetric import check_recorded

    gc.disable()
    func: Callable[..., Any] = _op(case.target) if cls is None else cls.apply  # type: ignore[attr-defined]
    assumed = Assumption()
    with torch.inference_mode(False), torch.enable_grad():
        args, kwargs = _with_leaves((args, kwargs), _upcast(args, kwargs, widen=widen))
        if not wants_grad(signature(args, kwargs)):
            assumed = require_grad(func, args, kwargs)
            if assumed.skip:
                details = {"reason": assumed.skip}
                return CaseResult(case=case, outcome=Outcome.SKIPPED, reason="configured", details=details)
        result = _settled(check_recorded(case, func, args, kwargs, function_class=cls))
    return dataclasses.replace(result, notes=(*assumed.notes, *result.notes))


def _op(target: str) -> Any:
    namespace, _, name = target.partition("::")
    op: Any = getattr(torch.ops, namespace)
    for part in name.split("."):
        op = getattr(op, part)
    return op


def _settled(result: CaseResult) -> CaseResult:
    """A forward that raises says nothing about a gradient: tests also call what must be refused."""
    kinds = {finding.kind for check in result.checks for finding in check.findings}
    if result.outcome is not Outcome.ERRORED or kinds != {"user_error_in_forward"}:
        return result
    details = result.checks[0].details
    return dataclasses.replace(result, outcome=Outcome.INCONCLUSIVE, checks=(), reason="user_error", details=details)


def _tensors(value: Any, seen: set[int]) -> Iterator[Tensor]:
    """Tensors in arguments and in what they refer to: modules, closures, attributes."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
        yield from _tensors([v for v in vars(value).values() if isinstance(v, Tensor)], seen)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, seen)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item, seen)
    elif isinstance(value, MethodType):
        yield from _tensors(value.__self__, seen)
        yield from _tensors(value.__func__, seen)
    elif isinstance(value, functools.partial):
        yield from _tensors((value.func, value.args, value.keywords), seen)
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # a cell that is empty so far
                yield from _tensors(cell.cell_contents, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for item in vars(value).values():
            yield from _tensors(item, seen)


def _upcast(args: tuple[Any, ...], kwargs: dict[str, Any], *, widen: bool = True) -> dict[int, Tensor]:
    """Turn every low-precision tensor within reach to float64 in its own object; returns leaves for the arguments.

    With `widen` off, dtypes stay, and only the leaves are made. A tensor with a graph cannot be perturbed by itself, so
    it gets a leaf of the same memory; one made in inference mode gets a copy. Callables and objects among the arguments
    that hold such a tensor as well hold its leaf from then on: a backward may differentiate by what they hold.
    """
    leaves: dict[int, Tensor] = {}
    wide = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64}
    wide[torch.complex64] = torch.complex128
    if not widen:
        wide.clear()
    for tensor in _tensors((args, kwargs), set()):
        if tensor.grad_fn is not None or tensor.is_inference():
            data = tensor.clone() if tensor.is_inference() else tensor.detach()
            leaves[id(tensor)] = data.to(wide.get(tensor.dtype, tensor.dtype)).requires_grad_(tensor.requires_grad)
        elif tensor.dtype in wide and type(tensor) in (Tensor, torch.nn.Parameter):
            _widen(tensor, wide[tensor.dtype])
    if leaves:
        _hand_over((args, kwargs), leaves, set())
    return leaves


def _hand_over(value: Any, leaves: dict[int, Tensor], seen: set[int]) -> None:
    """Put leaves in the places of their tensors in all that arguments refer to: this process ends with the check."""
    if id(value) in seen or isinstance(value, Tensor | type | ModuleType):
        return
    seen.add(id(value))

    def instead(item: Any) -> Any:
        # tuples are made anew, what can be changed stays the object that others hold
        return _with_leaves(item, leaves) if isinstance(item, Tensor) or type(item) is tuple else item

    parts: list[Any] = []
    if isinstance(value, MethodType):
        parts = [value.__self__, value.__func__]
    elif isinstance(value, functools.partial):
        value.__setstate__((value.func, instead(value.args), value.keywords, vars(value)))  # type: ignore[attr-defined]
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # a cell that is empty so far
                cell.cell_contents = instead(cell.cell_contents)
                parts.append(cell.cell_contents)
    elif isinstance(value, dict):
        for key, item in value.items():
            value[key] = instead(item)
        parts = list(value.values())
    elif isinstance(value, list):
        value[:] = map(instead, value)
        parts = list(value)
    elif isinstance(value, tuple):
        parts = list(value)
    elif hasattr(value, "__dict__"):
        parts = [vars(value)]
    for part in parts:
        _hand_over(part, leaves, seen)


def _widen(tensor: Tensor, dtype: torch.dtype) -> None:
    """Change the dtype of a leaf in its own object. Its gradient so far belongs to the run, not to this copy."""
    tensor.grad = None
    tensor.data = tensor.data.to(dtype)
    if hasattr(tensor, "grad_dtype") and tensor.requires_grad:
        tensor.grad_dtype = dtype


def _with_leaves(value: Any, leaves: dict[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return leaves.get(id(value), value)
    if type(value) in (tuple, list):
        return type(value)(_with_leaves(item, leaves) for item in value)
    if type(value) is dict:
        return {key: _with_leaves(item, leaves) for key, item in value.items()}
    return value
