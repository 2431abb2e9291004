"""compiled: gradients under torch.compile equal eager ones. Off unless asked for: compiling takes seconds.

The backend is aot_eager with fullgraph, which traces forward and backward as every compiler backend does and generates
no code, so that a difference comes from tracing alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradbot.engine.checks.context import Context, concluded, raised, unsupported
from gradbot.engine.gradients import compare_gradients
from gradbot.engine.user_errors import one_line
from gradbot.model import CheckName, CheckResult

NAME = CheckName.COMPILED


def run(context: Context) -> CheckResult:
    """Compares values and gradients; unsupported where the function cannot be traced in one graph."""
    subject = context.subject
    if not subject.selected:
        return unsupported(NAME, "no_differentiable_output")
    torch.compiler.reset()
    compiled = torch.compile(subject.func, backend="aot_eager", fullgraph=True)

    def eager(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return subject.outputs(inputs)

    def traced(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return subject.outputs(inputs, compiled)

    try:
        eager(subject.copies())
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "forward")
    try:
        differences = compare_gradients(eager, traced, subject.inputs, seed=context.seed)
    except Exception as error:  # noqa: BLE001
        return unsupported(NAME, "not_compilable", message=one_line(error))
    finally:
        torch.compiler.reset()
    return concluded(
        NAME,
        tuple(
            context.finding(
                NAME,
                "compiled_mismatch",
                output=each.output,
                input=each.input,
                evidence=each.evidence,
                details={"relative_error": each.relative},
            )
            for each in differences
        ),
    )
