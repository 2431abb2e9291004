"""From a comparison of Jacobians to the result of a check: findings with their place, evidence and certainty."""

from __future__ import annotations

from gradbot.engine.checks.context import Context, concluded
from gradbot.engine.comparison import Block, Comparison, Verdict
from gradbot.engine.evidence import from_block
from gradbot.engine.problem import Problem
from gradbot.model import Capability, CheckName, CheckResult, Evidence, Finding, Outcome

SMALL = 1e-6
"""Relative errors below this are what rounding of a correct formula may leave; they are not worth a note."""


def judge(
    context: Context,
    problem: Problem,
    comparison: Comparison,
    *,
    check: CheckName,
    kind: str,
    methods: tuple[str, ...],
) -> CheckResult:
    """The result of `check` for what `comparison` says of `problem`; `kind` names a mismatch."""
    if comparison.verdict is Verdict.UNSURE:
        return CheckResult(
            check=check.value,
            outcome=Outcome.INCONCLUSIVE,
            capability=Capability.SUPPORTED,
            reason=comparison.reason,
            details={"dtype": str(problem.inputs[0].dtype).removeprefix("torch.")},
        )
    if comparison.verdict is Verdict.AGREE:
        return concluded(
            check,
            _small_mismatch(context, comparison, check, methods),
            evidence=Evidence(
                method=comparison.method,
                resolution=comparison.resolution,
                coverage=comparison.coverage,
                complete=True if comparison.blocks else None,
            ),
        )
    blocks = {(each.output, each.input): each for each in comparison.blocks}
    findings = tuple(
        context.finding(
            check,
            kind,
            methods=methods,
            output=output,
            input=input,
            evidence=_evidence(problem, comparison, blocks.get((output, input))),
        )
        for output, input in comparison.wrong_pairs
    )
    return concluded(check, findings)


def _small_mismatch(
    context: Context, comparison: Comparison, check: CheckName, methods: tuple[str, ...]
) -> tuple[Finding, ...]:
    if comparison.largest_relative_error <= SMALL:
        return ()
    details = {"relative_error": comparison.largest_relative_error}
    return (context.finding(check, "small_mismatch", methods=methods, details=details),)


def _evidence(problem: Problem, comparison: Comparison, block: Block | None) -> Evidence:
    if block is None:
        return Evidence(method=comparison.method)
    columns = problem.inputs[block.input].shape
    return from_block(block, comparison.method, tuple(columns), _output_shape(problem, block.output))


def _output_shape(problem: Problem, output: int) -> tuple[int, ...]:
    return tuple(problem.evaluate(problem.inputs)[output].shape)
