"""Running the checks of one case, one after the other, and what they say together."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from gradbot.engine import low_precision
from gradbot.engine.checks.context import Check, Context, concluded, raised, skipped, unsupported
from gradbot.engine.checks.registry import CHECKS, THROUGH_BACKWARD
from gradbot.engine.jacobian.point import OutputsChangedError
from gradbot.engine.low_precision.arithmetic import arithmetic
from gradbot.engine.observe import is_inexact
from gradbot.engine.prepare import Prepared
from gradbot.model import CheckName, CheckResult, CheckSettings, Outcome

OFF_BY_DEFAULT = frozenset({CheckName.COMPILED.value})

HIGHER_PRECISION = frozenset({CheckName.FORWARD_AD, CheckName.DOUBLE_BACKWARD, CheckName.FORWARD_OVER_BACKWARD})
"""Checks that difference quotients cannot decide in low precision: made in float64 where the function accepts it."""

_WORST_FIRST = (
    Outcome.FAILED,
    Outcome.ERRORED,
    Outcome.UNEXPECTED_PASS,
    Outcome.EXPECTED_FAILURE,
    Outcome.INCONCLUSIVE,
)
_DERIVATIVES = frozenset({CheckName.BACKWARD.value, CheckName.FORWARD_AD.value, CheckName.REFERENCE.value})


def rounding(prepared: Prepared) -> float:
    """The root of the unit roundoff of the coarsest arithmetic that the function's values show."""
    tensors = [*prepared.subject.inputs, *(each for each in prepared.outputs if is_inexact(each))]
    coarsest = max(torch.finfo(each.dtype).eps for each in tensors)
    with contextlib.suppress(Exception):  # user code may raise near the inputs; its checks will tell
        if prepared.subject.selected:
            coarsest = max(coarsest, torch.finfo(arithmetic(prepared.problem)).eps)
    return float((coarsest / 2) ** 0.5)


def run_checks(
    context: Context,
    on_stage: Callable[[str], None],
    on_check: Callable[[CheckResult], None] = lambda _result: None,
) -> tuple[CheckResult, ...]:
    """Every check that is selected and concerns the target, told to `on_stage` before it begins.

    `on_check` is given the result of each that was selected before the next one begins.
    """
    results: dict[str, CheckResult] = {}
    for name, run in CHECKS:
        if _left_out(name, context):
            continue
        if not _selected(name.value, context.settings):
            results[name.value] = skipped(name, "not_selected")
            continue
        on_stage(name.value)
        context = replace(context, earlier=dict(results))
        double = context.prepared
        low = low_precision.is_low(context.problem.inputs[0]) and not context.problem.in_place
        if name in HIGHER_PRECISION and low:
            double = low_precision.prepared_in_double(context.subject, seed=context.seed) or context.prepared
        result = _without_backward(name, context) or _timed(name, run, replace(context, prepared=double))
        results[name.value] = _required(result, context)
        on_check(results[name.value])
    return tuple(results.values())


def _left_out(name: CheckName, context: Context) -> bool:
    """Checks that do not concern this target at all and were not asked for by name are not even listed."""
    settings = context.settings
    if name.value in settings.checks or name.value in settings.require:
        return False
    return (
        name.value in OFF_BY_DEFAULT
        or (name is CheckName.REGISTRATION and context.op is None)
        or (name is CheckName.REFERENCE and not context.references.compared)
    )


def _without_backward(name: CheckName, context: Context) -> CheckResult | None:
    """The result of a check that needs the backward where `backward` found that there is none, or that it raises."""
    backward = context.earlier.get(CheckName.BACKWARD.value)
    if backward is None or name not in THROUGH_BACKWARD:
        return None
    if not context.subject.selected or backward.outcome is Outcome.UNSUPPORTED:
        return unsupported(name, backward.reason or "no_differentiable_output", **backward.details)
    if backward.reason == "user_error":
        return skipped(name, "backward_raises", **backward.details)
    return None


def _timed(name: CheckName, run: Check, context: Context) -> CheckResult:
    start = time.perf_counter()
    try:
        result = run(context)
    except OutputsChangedError as error:
        details = {"message": str(error)}
        finding = context.finding(name, "output_depends_on_perturbation", methods=("forward",), details=details)
        result = concluded(name, (finding,))
    except Exception as error:  # noqa: BLE001 - user code, where nothing nearer has caught it
        result = raised(context, name, error, "jvp" if name is CheckName.FORWARD_AD else "backward")
    return replace(result, seconds=time.perf_counter() - start)


def _selected(name: str, settings: CheckSettings) -> bool:
    if name in settings.skip_checks:
        return False
    if settings.checks:
        return name in settings.checks
    return name not in OFF_BY_DEFAULT or name in settings.require


def _required(result: CheckResult, context: Context) -> CheckResult:
    if result.outcome is not Outcome.UNSUPPORTED or result.check not in context.settings.require:
        return result
    finding = context.finding(
        CheckName(result.check), "required_check_unsupported", details={**result.details, "reason": result.reason}
    )
    return replace(result, outcome=Outcome.FAILED, findings=(*result.findings, finding))


def overall(results: Sequence[CheckResult]) -> Outcome:
    """The worst of the outcomes; passed only where a derivative was checked, if any was to be."""
    outcomes = {each.outcome for each in results}
    for outcome in _WORST_FIRST:
        if outcome in outcomes:
            return outcome
    ran = [each for each in results if each.outcome is not Outcome.SKIPPED]
    if not ran:
        return Outcome.SKIPPED
    derivatives = [each for each in ran if each.check in _DERIVATIVES] or ran
    return Outcome.PASSED if any(each.outcome is Outcome.PASSED for each in derivatives) else Outcome.UNSUPPORTED
