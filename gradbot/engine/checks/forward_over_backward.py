"""forward_over_backward: the derivative of the backward by forward mode, as Hessian-vector products take it."""

from __future__ import annotations

import torch

from gradbot.engine.checks.context import Context, not_differentiable_again, skipped, unsupported
from gradbot.engine.checks.second_order import first_derivative
from gradbot.engine.verdict import compare_and_judge
from gradbot.model import CheckName, CheckResult, Outcome

NAME = CheckName.FORWARD_OVER_BACKWARD


def run(context: Context) -> CheckResult:
    """Compares forward-mode Jacobians of the gradients; needs both a jvp and a backward that can be differentiated."""
    forward = context.earlier.get(CheckName.FORWARD_AD.value)
    if forward is not None and forward.outcome is Outcome.UNSUPPORTED:
        return unsupported(NAME, forward.reason, **forward.details)
    if context.problem.in_place:
        return skipped(NAME, "captured_inputs")
    if not any(each.numel() for each in context.problem.inputs):
        return skipped(NAME, "empty")
    try:
        first = first_derivative(context)
        if first.all_detached:
            return unsupported(NAME, "detached_backward")
        first.problem.jvp([torch.ones_like(each) for each in first.problem.inputs])
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return not_differentiable_again(context, NAME, error, "jvp")
    return compare_and_judge(
        context,
        first.problem,
        direction="forward",
        check=NAME,
        kind="jacobian_mismatch_forward_over_backward",
        methods=("jvp", "backward"),
    )
