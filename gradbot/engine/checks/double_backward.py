"""double_backward: the derivative of the backward, by a second backward, is the derivative of the gradients.

A backward that cannot be differentiated (once_differentiable, NumPy, no_grad all the way) is unsupported. One that
can, and leaves part of the derivative out, is wrong, and silently so: nothing raises in training.
"""

from __future__ import annotations

import torch

from gradbot.engine.checks.context import Context, not_differentiable_again, skipped, unsupported
from gradbot.engine.checks.second_order import first_derivative
from gradbot.engine.double_backward_cause import explained, refuses_twice
from gradbot.engine.verdict import compare_and_judge
from gradbot.model import CheckName, CheckResult

NAME = CheckName.DOUBLE_BACKWARD


def run(context: Context) -> CheckResult:
    """Compares Jacobians of the gradients, by inputs and by cotangents."""
    if not any(each.numel() for each in context.problem.inputs):
        return skipped(NAME, "empty")
    try:
        first = first_derivative(context)
        if first.all_detached:
            return unsupported(NAME, "detached_backward")
        linear = first.problem.linearize()
        live = [each for each in linear.outputs if each.requires_grad]
        if not live:
            return unsupported(NAME, "detached_backward")
        if all(map(refuses_twice, live)):
            return unsupported(NAME, "once_differentiable")
        # one second backward, to tell what it cannot do before anything is compared
        torch.autograd.grad([each.sum() for each in live], linear.inputs, allow_unused=True)
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return not_differentiable_again(context, NAME, error, "backward")
    result = compare_and_judge(
        context,
        first.problem,
        direction="reverse",
        check=NAME,
        kind="jacobian_mismatch_double_backward",
        methods=("backward", "vjp"),
    )
    return explained(result, context.problem, context.seed)
