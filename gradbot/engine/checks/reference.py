"""reference: values and gradients equal those of a declared reference, or gradients those of a declared surrogate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from gradbot.engine.checks.context import Context, concluded, raised, skipped
from gradbot.engine.gradients import Difference, compare_gradients
from gradbot.model import CheckName, CheckResult, Finding

NAME = CheckName.REFERENCE


def run(context: Context) -> CheckResult:
    """Compares with `references.reference` (values and gradients) and `references.surrogate_of` (gradients)."""
    reference, stand_in = context.references.reference, context.references.surrogate_of
    if reference is None and stand_in is None:
        return skipped(NAME, "no_reference")
    findings: tuple[Finding, ...] = ()
    try:
        if reference is not None:
            findings += _compared(context, reference, "reference_mismatch", values=True)
        if stand_in is not None:
            findings += _compared(context, stand_in, "surrogate_mismatch", values=False)
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "forward")
    return concluded(NAME, findings)


def _compared(context: Context, other: Callable[..., Any], kind: str, *, values: bool) -> tuple[Finding, ...]:
    subject = context.subject

    def own(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return subject.outputs(inputs)

    def theirs(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return subject.outputs(inputs, other)

    differences = compare_gradients(
        own,
        theirs,
        subject.inputs,
        atol=context.settings.atol,
        rtol=context.settings.rtol,
        values=values,
        seed=context.seed,
    )
    return tuple(_finding(context, kind, each) for each in differences)


def _finding(context: Context, kind: str, difference: Difference) -> Finding:
    return context.finding(
        NAME,
        kind,
        methods=("forward",) if difference.input is None else ("backward", "vjp"),
        output=difference.output,
        input=difference.input,
        evidence=difference.evidence,
        details={"what": _what(difference), "relative_error": difference.relative, "shapes": difference.shapes},
    )


def _what(difference: Difference) -> str:
    if difference.shapes:
        return "shape"
    return "value" if difference.input is None else "gradient"
