"""From a comparison of Jacobians to the result of a check.

What differs is first asked whether it may: at a kink, a jump or the edge of a domain difference quotients say nothing
about a gradient. What is wrong becomes one finding for each pair of output and input, with evidence of where and, where
a pattern is recognised, why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from gradbot.engine import draws, kinks, localise, low_precision, stepwise, surrogates
from gradbot.engine.beside import DISTANCE, where_it_shows
from gradbot.engine.checks.context import Context, concluded, cotangents, not_differentiable_again, raised
from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.diagnose import diagnose
from gradbot.engine.directional import REFUSALS
from gradbot.engine.jacobian.point import OutputsChangedError
from gradbot.engine.kinks import TriageVerdict
from gradbot.engine.problem import Problem
from gradbot.engine.small_errors import persistent
from gradbot.model import (
    Capability,
    Certainty,
    CheckName,
    CheckResult,
    Diagnosis,
    Evidence,
    Finding,
    Outcome,
    Scalar,
    Severity,
)

SMALL = 1e-5
"""Relative errors below this are what rounding of a right formula may leave; they are not worth a note."""

_INCONCLUSIVE = {
    TriageVerdict.KINK_VALID: "kink",
    TriageVerdict.JUMP: "jump",
    TriageVerdict.DOMAIN_EDGE: "domain",
    TriageVerdict.UNDECIDED: "undecided",
}
_KINDS_AT_POINT = {TriageVerdict.KINK_INVALID: "invalid_subgradient", TriageVerdict.WRONG_AT_POINT: "wrong_at_point"}


def compare_and_judge(
    context: Context, problem: Problem, *, direction: str, check: CheckName, kind: str, methods: tuple[str, ...]
) -> CheckResult:
    """Compares the Jacobians of `problem` and says what that means for `check`; `kind` names a mismatch.

    `direction` is "reverse" or "forward"; `methods` are where the cause is looked for in a Function.
    """
    try:
        if _is_low(problem):
            return _judge_low(context, problem, direction, check, methods)
        comparison = compare_jacobians(problem, direction=direction, settings=context.settings, seed=context.seed)
    except OutputsChangedError as error:
        details = {"message": str(error)}
        return concluded(
            check, (context.finding(check, "output_depends_on_perturbation", methods=("forward",), details=details),)
        )
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        second_order = check in (CheckName.DOUBLE_BACKWARD, CheckName.FORWARD_OVER_BACKWARD)
        conclude = not_differentiable_again if second_order else raised
        return conclude(context, check, error, "backward" if direction == "reverse" else "jvp")
    if comparison.verdict is Verdict.AGREE:
        return _agreed(context, problem, comparison, check, methods)
    if comparison.verdict is Verdict.UNSURE:
        return _inconclusive(context, problem, check, comparison.reason)
    if direction == "forward":
        return _judge_forward(context, problem, comparison, check, kind, methods)
    return _judge_reverse(context, problem, comparison, check, kind, methods)


def _is_low(problem: Problem) -> bool:
    """Whether inputs or outputs are below float64, or the arithmetic inside is, as the outputs show."""
    if any(low_precision.is_low(each) for each in problem.inputs):
        return True
    return low_precision.arithmetic(problem) is not torch.float64


def _judge_low(
    context: Context, problem: Problem, direction: str, check: CheckName, methods: tuple[str, ...]
) -> CheckResult:
    if check is not CheckName.BACKWARD:
        comparison = compare_jacobians(problem, direction=direction, settings=context.settings, seed=context.seed)
        if comparison.verdict is Verdict.AGREE:
            return _agreed(context, problem, comparison, check, methods)
        return _inconclusive(context, problem, check, "precision")
    examined = low_precision.examine(
        context.subject, problem, context.settings, reference=context.references.reference, seed=context.seed
    )
    comparison = examined.comparison
    if comparison.verdict is Verdict.AGREE:
        return _agreed(context, problem, comparison, check, methods)
    if comparison.verdict is Verdict.UNSURE:
        return _inconclusive(context, problem, check, comparison.reason or "precision")
    if examined.problem is not problem:
        return _judge_reverse(context, examined.problem, comparison, check, examined.kind, methods)
    if not _declared(context):
        surrogate = surrogates.recognise(problem, comparison, context.seed)
        if surrogate is not None:
            return _undeclared_surrogate(context, surrogate, check)
    blocks = {(each.output, each.input): each for each in comparison.blocks}
    findings = []
    for output, position in comparison.wrong_pairs:
        block = blocks.get((output, position))
        where = None if block is None else localise.from_block(problem, block, comparison)
        findings.append(
            context.finding(
                check,
                examined.kind,
                methods=methods,
                output=output,
                input=position,
                certainty=Certainty.CERTAIN if block is not None else Certainty.LIKELY,
                evidence=Evidence(method=comparison.method, resolution=comparison.resolution)
                if where is None
                else where.evidence,
                diagnosis=None if where is None else _diagnosis(context, problem, comparison, where, check),
                details={"dtype": str(low_precision.arithmetic(problem)).removeprefix("torch.")},
                names=(problem.output_names, problem.input_names),
            )
        )
    return concluded(check, tuple(findings))


def with_findings(result: CheckResult, findings: tuple[Finding, ...]) -> CheckResult:
    """A result with more findings; an error among them makes it a failure."""
    if not findings:
        return result
    wrong = any(each.severity is Severity.ERROR for each in findings)
    return replace(
        result,
        findings=(*result.findings, *findings),
        outcome=Outcome.FAILED if wrong else result.outcome,
        capability=Capability.WRONG if wrong else result.capability,
        reason="" if wrong else result.reason,
    )


def _agreed(
    context: Context, problem: Problem, comparison: Comparison, check: CheckName, methods: tuple[str, ...]
) -> CheckResult:
    findings: tuple[Finding, ...] = ()
    forward = check in (CheckName.FORWARD_AD, CheckName.FORWARD_OVER_BACKWARD)
    relative_error = 0.0
    if comparison.largest_relative_error > SMALL:
        relative_error = persistent(problem, comparison, "forward" if forward else "reverse")
    if relative_error > SMALL:
        details = {"relative_error": relative_error}
        findings = (context.finding(check, "small_mismatch", methods=methods, details=details),)
    evidence = Evidence(
        method=comparison.method,
        resolution=comparison.resolution,
        coverage=comparison.coverage,
        complete=True if comparison.blocks else None,
    )
    return concluded(check, findings, evidence=evidence)


def _inconclusive(context: Context, problem: Problem, check: CheckName, reason: str) -> CheckResult:
    findings: tuple[Finding, ...] = ()
    if reason in ("kink", "jump"):
        findings = (context.finding(check, "nondifferentiable_point", methods=("forward",), details={"point": reason}),)
    return CheckResult(
        check=check.value,
        outcome=Outcome.INCONCLUSIVE,
        capability=Capability.SUPPORTED,
        reason=reason,
        findings=findings,
        details={"dtype": str(problem.inputs[0].dtype).removeprefix("torch.")},
    )


def _judge_reverse(
    context: Context, problem: Problem, comparison: Comparison, check: CheckName, kind: str, methods: tuple[str, ...]
) -> CheckResult:
    if check is CheckName.BACKWARD and not _declared(context):
        surrogate = surrogates.recognise(problem, comparison, context.seed)
        if surrogate is not None:
            return _undeclared_surrogate(context, surrogate, check)
    triage = kinks.triage(problem, comparison, context.settings, context.seed)
    if triage.verdict in _INCONCLUSIVE:
        return _inconclusive(context, problem, check, _INCONCLUSIVE[triage.verdict])
    if stepwise.explains(problem, comparison, context.seed):
        return _inconclusive(context, problem, check, "moves_in_steps")
    if check is CheckName.BACKWARD:
        if draws.right_on_average(context.prepared, comparison.wrong_pairs, context.seed):
            return _inconclusive(context, problem, check, "right_on_average")
        kind = _KINDS_AT_POINT.get(triage.verdict, kind)
    if triage.verdict is not TriageVerdict.WRONG_GRADIENT:
        return concluded(check, _located(context, problem, comparison, check, kind, methods, {}))
    with where_it_shows(problem, comparison, context.settings, context.seed) as (shown, seen, beside):
        details: Mapping[str, Scalar] = {"beside": DISTANCE} if beside else {}
        return concluded(check, _located(context, shown, seen, check, kind, methods, details))


def _located(
    context: Context,
    problem: Problem,
    comparison: Comparison,
    check: CheckName,
    kind: str,
    methods: tuple[str, ...],
    details: Mapping[str, Scalar],
) -> tuple[Finding, ...]:
    """One finding for each wrong pair, with its place, its entries and its cause."""
    try:
        found = localise.localise(problem, comparison, context.settings, context.seed)
    except REFUSALS:
        found = ()  # the function refuses a step beside the point: where it is wrong stays as coarse as it was seen
    located = {(each.output, each.input): each for each in found}
    findings = []
    for output, position in comparison.wrong_pairs:
        where = located.get((output, position))
        diagnosis = None if where is None else _diagnosis(context, problem, comparison, where, check)
        meant = surrogates.expectation_of(diagnosis)
        findings.append(
            context.finding(
                check,
                kind,
                methods=methods,
                output=output,
                input=position,
                certainty=Certainty.CERTAIN if where is None or where.confirmed else Certainty.LIKELY,
                evidence=Evidence(method=comparison.method) if where is None else where.evidence,
                diagnosis=diagnosis,
                details={**details, "configuration": _declaration(context, meant)} if meant else details,
                names=(problem.output_names, problem.input_names),
            )
        )
    return tuple(findings)


def _declared(context: Context) -> bool:
    """Whether the gradient is said to differ, or what it is said to be."""
    return bool(context.settings.expect) or context.references.surrogate_of is not None


def _undeclared_surrogate(context: Context, surrogate: surrogates.Surrogate, check: CheckName) -> CheckResult:
    details = {"expect": surrogate.expect, "configuration": _declaration(context, surrogate.expect)}
    finding = context.finding(
        check, "undeclared_surrogate", output=surrogate.output, input=surrogate.input, details=details
    )
    return CheckResult(
        check=check.value,
        outcome=Outcome.INCONCLUSIVE,
        capability=Capability.SUPPORTED,
        reason="undeclared_surrogate",
        findings=(finding,),
        details=details,
    )


def _declaration(context: Context, expect: str) -> str:
    return surrogates.declaration(context.target, expect)


def _diagnosis(
    context: Context, problem: Problem, comparison: Comparison, where: localise.Localised, check: CheckName
) -> Diagnosis | None:
    subject = context.subject
    first_order = check in (CheckName.BACKWARD, CheckName.FORWARD_AD)
    outputs = [context.prepared.outputs[each] for each in subject.selected]
    try:
        return diagnose(
            problem,
            comparison,
            where,
            forward=check in (CheckName.FORWARD_AD, CheckName.FORWARD_OVER_BACKWARD),
            complex_inputs=[each.is_complex() for each in subject.inputs] if first_order else (),
            complex_outputs=[each.is_complex() for each in outputs] if first_order else (),
        )
    except REFUSALS:
        # A cause is an addition: user code that raises beside the inputs takes nothing from what was found.
        return None


def _judge_forward(
    context: Context, problem: Problem, comparison: Comparison, check: CheckName, kind: str, methods: tuple[str, ...]
) -> CheckResult:
    """Where backward mode agreed with differences at this very point, the point is smooth and the jvp is wrong."""
    other = CheckName.BACKWARD if check is CheckName.FORWARD_AD else CheckName.DOUBLE_BACKWARD
    earlier = context.earlier.get(other.value)
    if earlier is not None and earlier.outcome is Outcome.INCONCLUSIVE and _same_both_ways(context, problem):
        return _inconclusive(context, problem, check, earlier.reason)
    smooth = earlier is not None and earlier.outcome is Outcome.PASSED
    if not smooth and _agrees_beside(context, problem):
        return _inconclusive(context, problem, check, "kink")
    blocks = {(each.output, each.input): each for each in comparison.blocks}
    findings = []
    for output, position in comparison.wrong_pairs:
        block = blocks.get((output, position))
        where = None if block is None else localise.from_block(problem, block, comparison)
        findings.append(
            context.finding(
                check,
                kind,
                methods=methods,
                output=output,
                input=position,
                evidence=Evidence(method=comparison.method) if where is None else where.evidence,
                diagnosis=None if where is None else _diagnosis(context, problem, comparison, where, check),
                names=(problem.output_names, problem.input_names),
            )
        )
    return concluded(check, tuple(findings))


def _same_both_ways(context: Context, problem: Problem) -> bool:
    """Whether forward and backward mode give one Jacobian, right or wrong: vᵀ(Ju) = (Jᵀv)ᵀu for random u and v."""
    linear = problem.linearize()
    for salt in (12, 13):
        along = cotangents(problem.inputs, context.generator(salt))
        against = cotangents(linear.outputs, context.generator(salt + 2))
        forward = [v * t for v, t in zip(against, problem.jvp(along), strict=True)]
        backward = [g * u for g, u in zip(linear.vjp(against), along, strict=True) if g is not None]
        size = sum(float(each.detach().abs().sum()) for each in (*forward, *backward))
        gap = sum(float(each.sum()) for each in forward) - sum(float(each.sum()) for each in backward)
        if not abs(gap) <= context.rounding * size:
            return False
    return True


def _agrees_beside(context: Context, problem: Problem) -> bool:
    """Whether forward mode agrees with differences at two of three generic points nearby."""
    generator = context.generator(8)
    agreed = 0
    for _ in range(3):
        moved = tuple(_moved(each.detach(), generator) for each in problem.inputs)
        beside = replace(problem, inputs=moved)
        with contextlib.suppress(Exception):  # beyond the edge of the domain user code may raise
            comparison = compare_jacobians(beside, direction="forward", settings=context.settings, seed=context.seed)
            agreed += comparison.verdict is Verdict.AGREE
    return agreed >= 2


def _moved(values: Tensor, generator: torch.Generator) -> Tensor:
    """Every element moved by up to 2^-10 of its size or, of small ones, of the mean size; of zeros, by up to 2^-10."""
    size = values.abs()
    typical = float(size.mean()) if values.numel() else 0.0
    direction = (torch.rand(values.shape, generator=generator, dtype=torch.float64) * 2 - 1).to(values)
    return (values + 2.0**-10 * size.clamp_min(typical or 1.0) * direction).requires_grad_()
