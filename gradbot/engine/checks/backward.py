"""backward: the Jacobian that the backward gives is the derivative of the forward."""

from __future__ import annotations

import torch

from gradbot.engine.checks.context import Context, concluded, cotangents, raised, unsupported
from gradbot.engine.checks.values import disagrees
from gradbot.engine.observe import is_inexact
from gradbot.engine.verdict import compare_and_judge
from gradbot.model import CheckName, CheckResult

NAME = CheckName.BACKWARD

NOISE = 1e-9  # relative; what a constant computed in floating point may vary by


def run(context: Context) -> CheckResult:
    """Compares reverse-mode and numerical Jacobians of every differentiable output by every checked input."""
    if not context.subject.selected:
        return _without_graph(context)
    problem = context.problem
    try:
        linear = problem.linearize()
        # one backward first, to tell what it cannot do before anything is compared
        linear.vjp([torch.ones_like(each) for each in linear.outputs])
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "backward")
    return compare_and_judge(
        context,
        problem,
        direction="reverse",
        check=NAME,
        kind="jacobian_mismatch_backward",
        methods=("backward", "vjp"),
    )


def _without_graph(context: Context) -> CheckResult:
    """No output has a graph: right for a step function, a missing gradient where outputs vary with the inputs."""
    if context.op is not None:
        return unsupported(NAME, "no_formula", message="no autograd formula is registered")
    varying = _varying_outputs(context)
    if not varying:
        return unsupported(NAME, "no_differentiable_output")
    details = {"outputs": ", ".join(map(str, varying))}
    return concluded(NAME, (context.finding(NAME, "no_diff_outputs_nonzero", methods=("forward",), details=details),))


def _varying_outputs(context: Context) -> list[int]:
    """Positions of floating-point outputs that are other ones at two generic points nearby."""
    generator = context.generator(11)
    inputs = [each.detach() for each in context.subject.inputs]
    values = []
    for step in (2.0**-12, 2.0**-13):
        moved = [
            each + step * each.abs().mean() * direction
            for each, direction in zip(inputs, cotangents(tuple(inputs), generator), strict=True)
        ]
        try:
            with torch.no_grad():
                values.append(context.subject.call(moved))
        except Exception:  # noqa: BLE001 - where it cannot be looked at, nothing is claimed
            return []
    return [
        position
        for position, (one, other) in enumerate(zip(*values, strict=False))
        if is_inexact(one) and is_inexact(other) and disagrees([one], [other], relative=NOISE) is not None
    ]
