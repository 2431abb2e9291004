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
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from gradbot import codec
from gradbot.model import Case, CaseResult, CheckSettings, Crash, InputSource, Outcome
from gradbot.record.spool import InPlace

SECONDS = 60.0


def checker(
    folder: Path, *, seconds: float = SECONDS, limit_per_target: int = 8, seconds_per_target: float = 2 * SECONDS
) -> InPlace:
    """A function that checks calls on the spot and writes each `CaseResult` to `folder` as `*.result.json`.

    The suite waits meanwhile, so no target gets more than `limit_per_target` checks or about `seconds_per_target`.
    """
    counts: dict[str, int] = {}
    spent: dict[str, float] = {}

    def check(target: str, cls: type | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        index, start = counts.get(target, 0), time.monotonic()
        if index >= limit_per_target or spent.get(target, 0.0) >= seconds_per_target or not hasattr(os, "fork"):
            return
        counts[target] = index + 1
        case = _case(target, index)
        path = folder / f"{uuid.uuid4().hex}.result.json"
        result = _attempt(case, cls, args, kwargs, path, seconds, widen=True)
        if result.outcome is Outcome.ERRORED or result.reason == "user_error":
            # Not every tensor that a call uses is within reach, and float64 may meet float32: as it was, then.
            again = _attempt(_as_called(case, args, kwargs), cls, args, kwargs, path, seconds, widen=False)
            result = again if again.outcome is not Outcome.ERRORED else result
        path.write_text(codec.dumps(result), encoding="utf-8")
        spent[target] = spent.get(target, 0.0) + time.monotonic() - start

    return check


def _case(target: str, index: int) -> Case:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    name = f"in-place-{index}"
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
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code == 0:
                return None
            if code < 0:
                crash = Crash(cause="signal", signal=signal.Signals(-code).name)
            else:
                crash = Crash(cause="exit", exit_code=code)
            return CaseResult(case=case, outcome=Outcome.CRASHED, crash=crash)
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return CaseResult(case=case, outcome=Outcome.TIMED_OUT, crash=Crash(cause="timeout", limit=f"{seconds:g} s"))


def _checked(case: Case, cls: type | None, args: tuple[Any, ...], kwargs: dict[str, Any], *, widen: bool) -> CaseResult:
    from gradbot.engine.api import check_case

    gc.disable()
    leaves = _upcast(args, kwargs, widen=widen)
    args, kwargs = _with_leaves((args, kwargs), leaves)
    if cls is not None:
        func: Callable[..., Any] = cls.apply  # type: ignore[attr-defined]
        return _settled(check_case(case, func, args, kwargs, function_class=cls))
    namespace, _, name = case.target.partition("::")
    op: Any = getattr(torch.ops, namespace)
    for part in name.split("."):
        op = getattr(op, part)
    return _settled(check_case(case, op, args, kwargs))


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
    it gets a leaf of the same memory.
    """
    leaves: dict[int, Tensor] = {}
    wide = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64}
    wide[torch.complex64] = torch.complex128
    if not widen:
        wide.clear()
    for tensor in _tensors((args, kwargs), set()):
        if tensor.grad_fn is not None:
            data = tensor.detach()
            leaves[id(tensor)] = data.to(wide.get(tensor.dtype, tensor.dtype)).requires_grad_(tensor.requires_grad)
        elif tensor.dtype in wide and type(tensor) in (Tensor, torch.nn.Parameter):
            _widen(tensor, wide[tensor.dtype])
    return leaves


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
