"""Every check. A check is a function from a `Context` to a `CheckResult`, and stands in a file of its own."""

from __future__ import annotations

from gradbot.engine.checks import (
    backward,
    batched_forward_grad,
    batched_grad,
    compiled,
    determinism,
    double_backward,
    forward_ad,
    forward_over_backward,
    grad_metadata,
    grad_outputs,
    needs_input_grad,
    reference,
    registration,
    side_effects,
    undefined_grad,
)
from gradbot.engine.checks.context import Check
from gradbot.model import CheckName

CHECKS: tuple[tuple[CheckName, Check], ...] = (
    (backward.NAME, backward.run),
    (forward_ad.NAME, forward_ad.run),
    (double_backward.NAME, double_backward.run),
    (forward_over_backward.NAME, forward_over_backward.run),
    (batched_grad.NAME, batched_grad.run),
    (batched_forward_grad.NAME, batched_forward_grad.run),
    (undefined_grad.NAME, undefined_grad.run),
    (grad_outputs.NAME, grad_outputs.run),
    (grad_metadata.NAME, grad_metadata.run),
    (needs_input_grad.NAME, needs_input_grad.run),
    (determinism.NAME, determinism.run),
    (side_effects.NAME, side_effects.run),
    (registration.NAME, registration.run),
    (reference.NAME, reference.run),
    (compiled.NAME, compiled.run),
)
"""Every check in the order in which they run: later ones may look at the results of earlier ones."""

THROUGH_BACKWARD = frozenset(
    {
        CheckName.DOUBLE_BACKWARD,
        CheckName.FORWARD_OVER_BACKWARD,
        CheckName.BATCHED_GRAD,
        CheckName.UNDEFINED_GRAD,
        CheckName.GRAD_OUTPUTS,
        CheckName.GRAD_METADATA,
        CheckName.NEEDS_INPUT_GRAD,
    }
)
"""Checks that have nothing to look at where there is no backward, or where it raises."""
