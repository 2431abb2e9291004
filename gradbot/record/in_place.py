"""Checks a call right where it happens, on its own objects, in a forked copy of the process.

For calls whose arguments cannot be written down: closures, modules with state, objects. Aliasing between arguments
and modules stays intact; low-precision tensors are upcast in place. The run itself only waits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import os
import time
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gradbot import codec
from gradbot.engine.reach import tensors
from gradbot.model import Case, CaseResult, CheckName, CheckResult, CheckSettings, InputSource, Note, Outcome
from gradbot.record.assumed import Assumption, require_grad
from gradbot.record.fork import forked
from gradbot.record.reach import upcast, with_leaves
from gradbot.record.signature import called, signature, wants_grad
from gradbot.record.spool import InPlace

if TYPE_CHECKING:
    from gradbot.record.held import HeldBack

SECONDS = 60.0

USED_BY_CHECKS = (
    "gradbot.record.held",
    "gradbot.record.symmetric",
    "torch._decomp.decompositions_for_jvp",
    "torch.fx.experimental.symbolic_shapes",
)
"""What every fork would import anew, for half a second each."""

ASSUMED_PER_TARGET = 2
"""Checks of calls of which no input requires grad; they count only where no other call of the target is seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call that is being made, and how long a check of it may take. `assumed`: it asks for no gradient itself."""

    func: Callable[..., Any]
    cls: type | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    assumed: bool
    seconds: float


def checker(
    folder: Path, *, seconds: float = SECONDS, limit_per_target: int = 8, seconds_per_target: float = 2 * SECONDS
) -> InPlace:
    """A function that checks calls on the spot and writes each `CaseResult` to `folder` as `*.result.json`.

    The suite waits meanwhile, so no target gets more than `limit_per_target` checks or about `seconds_per_target`.
    """
    counts: dict[tuple[str, bool], int] = {}
    spent: dict[tuple[str, bool], float] = {}

    def check(target: str, cls: type | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assumed = not wants_grad(called(args, kwargs))
        key, limit = (target, assumed), ASSUMED_PER_TARGET if assumed else limit_per_target
        index, start = counts.get(key, 0), time.monotonic()
        if index >= limit or spent.get(key, 0.0) >= seconds_per_target or not hasattr(os, "fork"):
            return
        counts[key] = index + 1
        _import_what_checks_use()
        case = _case(target, index, assumed=assumed)
        func = _op(target) if cls is None else cls.apply  # type: ignore[attr-defined]
        call = _Call(func=func, cls=cls, args=args, kwargs=kwargs, assumed=assumed, seconds=seconds)
        result = _result(case, call)
        (folder / f"{uuid.uuid4().hex}.result.json").write_text(codec.dumps(result), encoding="utf-8")
        spent[key] = spent.get(key, 0.0) + time.monotonic() - start

    return check


def _import_what_checks_use() -> None:
    with warnings.catch_warnings():  # those of torch's own modules are not the suite's, which may make errors of them
        warnings.simplefilter("ignore")
        for name in USED_BY_CHECKS:
            with contextlib.suppress(ImportError):  # not every version of torch has each
                importlib.import_module(name)


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


def _as_called(case: Case, call: _Call) -> Case:
    """The case in the dtype that the call itself has."""
    reached = tensors((call.args, call.kwargs))
    dtypes = [str(each.dtype).removeprefix("torch.") for each in reached if each.requires_grad]
    dtype = dtypes[0] if dtypes else case.dtype
    return dataclasses.replace(case, dtype=dtype, id=f"{case.target}[{case.name}]cpu:{dtype}")


def _result(case: Case, call: _Call) -> CaseResult:
    """The check on all that can be moved, in float64; where that goes wrong, on less, and as the call was made."""
    result = _attempt(case, call)
    plain = _as_called(case, call)
    if result.outcome in (Outcome.ERRORED, Outcome.SKIPPED) or result.reason == "user_error":
        # Not every tensor that a call uses is within reach, and float64 may meet float32: as it was, then.
        again = _attempt(plain, call, widen=False)
        result = again if again.outcome is not Outcome.ERRORED else result
    if result.outcome in (Outcome.FAILED, Outcome.ERRORED):
        from gradbot.record.held import held_back

        held = held_back(call.func, call.args, call.kwargs)
        result = _attempt(plain, call, widen=False, held=held) if held.names else result
    if _raises(result, "user_error_in_backward"):
        unchanged = forked(lambda _: _unchanged(plain, call), plain, call.seconds)
        return _undecided(result, "only_on_copies") if unchanged.outcome is Outcome.PASSED else result
    return result


def _attempt(case: Case, call: _Call, *, widen: bool = True, held: HeldBack | None = None) -> CaseResult:
    return forked(lambda on_check: _checked(case, call, on_check, widen=widen, held=held), case, call.seconds)


def _checked(
    case: Case, call: _Call, on_check: Callable[[CheckResult], None], *, widen: bool, held: HeldBack | None
) -> CaseResult:
    from gradbot.record.symmetric import check_recorded

    gc.disable()
    func, args, kwargs, notes = call.func, call.args, call.kwargs, []
    assumed = Assumption()
    with torch.inference_mode(False), torch.enable_grad():
        if held is not None:
            from gradbot.record.held import without

            func, args, kwargs = without(held, func, args, kwargs)
            notes = [Note(code="held_back", details={"inputs": ", ".join(held.names.values())})]
        leaves = upcast(args, kwargs, widen=widen, keep=held.keep if held else ())
        args, kwargs = with_leaves((args, kwargs), leaves)
        if call.assumed or not wants_grad(signature(args, kwargs)):
            assumed = require_grad(func, args, kwargs)
            if assumed.skip:
                details = {"reason": assumed.skip}
                return CaseResult(case=case, outcome=Outcome.SKIPPED, reason="configured", details=details)
        result = check_recorded(case, func, args, kwargs, function_class=call.cls, on_check=on_check)
    result = dataclasses.replace(result, notes=(*notes, *assumed.notes, *result.notes))
    # a forward that raises says nothing about a gradient: tests also call what must be refused
    return _undecided(result, "user_error") if _raises(result, "user_error_in_forward") else result


def _unchanged(case: Case, call: _Call) -> CaseResult:
    """The call and its backward on the arguments themselves. Raises what user code raises."""
    with torch.inference_mode(False), torch.enable_grad():
        outputs = [each for each in tensors(call.func(*call.args, **call.kwargs)) if each.requires_grad]
        inputs = [each for each in tensors((call.args, call.kwargs)) if each.requires_grad]
        torch.autograd.grad(outputs, inputs, [torch.randn_like(each) for each in outputs], allow_unused=True)
    return CaseResult(case=case, outcome=Outcome.PASSED)


def _op(target: str) -> Any:
    namespace, _, name = target.partition("::")
    op: Any = getattr(torch.ops, namespace)
    for part in name.split("."):
        op = getattr(op, part)
    return op


def _raises(result: CaseResult, kind: str) -> bool:
    """Whether all there is to say of a case is that its forward, or its backward, raises when it is first asked."""
    kinds = {finding.kind for check in result.checks for finding in check.findings}
    return result.outcome is Outcome.ERRORED and kinds == {kind} and _first_backward(result) is not None


def _first_backward(result: CaseResult) -> CheckResult | None:
    """The check of the backward, where it raised."""
    name = CheckName.BACKWARD.value
    return next((each for each in result.checks if each.check == name and each.reason == "user_error"), None)


def _undecided(result: CaseResult, reason: str) -> CaseResult:
    raised = _first_backward(result)
    assert raised is not None
    return dataclasses.replace(result, outcome=Outcome.INCONCLUSIVE, checks=(), reason=reason, details=raised.details)
