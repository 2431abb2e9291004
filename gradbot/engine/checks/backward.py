"""backward: the Jacobian that the backward gives is the derivative of the forward."""

from __future__ import annotations

from gradbot.engine.checks.context import Context, raised, unsupported
from gradbot.engine.compare import compare_jacobians
from gradbot.engine.verdict import judge
from gradbot.model import CheckName, CheckResult

NAME = CheckName.BACKWARD


def run(context: Context) -> CheckResult:
    """Compares reverse-mode and numerical Jacobians of every differentiable output by every checked input."""
    if not context.subject.selected:
        return unsupported(NAME, "no_differentiable_output")
    problem = context.problem
    try:
        linear = problem.linearize()
        linear.vjp([each.new_ones(each.shape) for each in linear.outputs])
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "backward")
    comparison = compare_jacobians(problem, direction="reverse", settings=context.settings, seed=context.seed)
    return judge(
        context,
        problem,
        comparison,
        check=NAME,
        kind="jacobian_mismatch_backward",
        methods=("backward", "vjp"),
    )
