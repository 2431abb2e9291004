"""undefined_grad: an output that takes no part in a loss reaches the backward as None or as zeros, with one result.

None reaches user code only after `ctx.set_materialize_grads(False)`; the check makes both kinds of call anyway.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.checks.context import Context, concluded, cotangents, raised
from gradbot.engine.checks.values import disagrees, where_finite
from gradbot.engine.user_errors import one_line
from gradbot.model import CheckName, CheckResult, Finding

NAME = CheckName.UNDEFINED_GRAD


def run(context: Context) -> CheckResult:
    """Leaves out every output in turn, then all of them, and compares with zero cotangents in their places."""
    subject = context.subject
    try:
        outputs = subject.graph()
        full = cotangents(outputs, context.generator())
        usual = _grad(outputs, subject.inputs, full)
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "backward")
    everything = frozenset(range(len(outputs)))
    subsets = [everything] + ([frozenset({each}) for each in sorted(everything)] if len(outputs) > 1 else [])
    findings, notes = context.found([partial(_one, context, outputs, full, usual, each) for each in subsets])
    return concluded(NAME, findings, notes=notes)


def _one(
    context: Context,
    outputs: tuple[Tensor, ...],
    full: tuple[Tensor, ...],
    scales: tuple[Tensor | None, ...],
    undefined: frozenset[int],
) -> Finding | None:
    inputs = context.subject.inputs
    which = "all" if len(undefined) == len(outputs) else ", ".join(map(str, sorted(undefined)))
    output = None if len(undefined) == len(outputs) and len(outputs) > 1 else min(undefined)
    zeroed = tuple(torch.zeros_like(v) if k in undefined else v for k, v in enumerate(full))
    try:
        expected = _grad(outputs, inputs, zeroed)
    except Exception:  # noqa: BLE001 - a backward that refuses zeros is another check's finding
        return None
    try:
        found = _grad([_undefined(o) if k in undefined else o for k, o in enumerate(outputs)], inputs, full)
    except Exception as error:  # noqa: BLE001
        return context.finding(
            NAME, "undefined_grad", output=output, details={"undefined": which, "message": one_line(error)}
        )
    place = disagrees(
        where_finite(found, scales), where_finite(expected, scales), relative=context.rounding, scales=scales
    )
    if place is None:
        return None
    return context.finding(NAME, "undefined_grad", output=output, input=place, details={"undefined": which})


def _undefined(output: Tensor) -> Tensor:
    """The output with a node on top that passes an undefined gradient down."""
    undefined: Any = torch._C._functions.UndefinedGrad()
    return undefined(output)  # type: ignore[no-any-return]


def _grad(outputs: object, inputs: object, directions: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(  # type: ignore[no-any-return, call-overload]
        outputs, inputs, [each.clone() for each in directions], retain_graph=True, allow_unused=True
    )
