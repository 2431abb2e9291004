"""forward_ad: the Jacobian that the jvp gives is the derivative of the forward; the jvp is linear in its tangents."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.autograd.forward_ad as fwAD
from torch import Tensor

from gradbot.engine.checks.context import Context, concluded, cotangents, raised, skipped, unsupported
from gradbot.engine.checks.values import disagrees, where_finite
from gradbot.engine.problem import Problem
from gradbot.engine.user_errors import one_line
from gradbot.engine.verdict import compare_and_judge, with_findings
from gradbot.model import CheckName, CheckResult, Finding

NAME = CheckName.FORWARD_AD


def run(context: Context) -> CheckResult:
    """Compares forward-mode and numerical Jacobians, then tangents scaled, left out and zero."""
    if not context.subject.selected:
        return unsupported(NAME, "no_differentiable_output")
    if any(each.is_mkldnn or each.layout is not torch.strided for each in context.subject.inputs):
        return unsupported(NAME, "no_forward_ad_layout")
    problem = context.problem
    if problem.in_place:
        return skipped(NAME, "captured_inputs")
    tangents = cotangents(problem.inputs, context.generator(7))
    try:
        first = _tangents(problem, tangents)
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "jvp")
    if all(each is None for each in first) and "jvp" not in vars(context.function_class or object):
        # an op's autograd formula covers the backward alone, and torch drops the tangent without a word
        return unsupported(NAME, "tangent_dropped")
    complex_tangents = _complex_of_real(context)
    if complex_tangents:
        return concluded(NAME, complex_tangents)
    result = compare_and_judge(
        context, problem, direction="forward", check=NAME, kind="jacobian_mismatch_forward", methods=("jvp",)
    )
    return with_findings(result, (*_nonlinear(context, tangents, first), *_undefined(context, tangents, first)))


def _tangents(problem: Problem, tangents: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """The outputs' tangents; None where there is none. An input whose tangent is None takes no part."""
    with torch.set_grad_enabled(problem.grad_mode), fwAD.dual_level():
        duals = [
            each if tangent is None else fwAD.make_dual(each, tangent)  # type: ignore[no-untyped-call]
            for each, tangent in zip(_copies(problem.inputs, problem.grad_mode), tangents, strict=True)
        ]
        found = [fwAD.unpack_dual(each).tangent for each in problem.func(*duals)]  # type: ignore[no-untyped-call]
        return tuple(None if each is None else each.detach().clone() for each in found)


def _copies(tensors: Sequence[Tensor], requires_grad: bool) -> list[Tensor]:
    return [each.detach().clone().requires_grad_(requires_grad) for each in tensors]


def _complex_of_real(context: Context) -> tuple[Finding, ...]:
    """Outputs that are real with a complex tangent, which a real Jacobian would not show."""
    subject = context.subject
    tangents = cotangents(subject.inputs, context.generator(12))
    with torch.set_grad_enabled(context.problem.grad_mode), fwAD.dual_level():
        copies = _copies(subject.inputs, context.problem.grad_mode)
        duals = [fwAD.make_dual(x, t) for x, t in zip(copies, tangents, strict=True)]  # type: ignore[no-untyped-call]
        pairs = [fwAD.unpack_dual(each) for each in subject.outputs(duals)]  # type: ignore[no-untyped-call]
        return tuple(
            context.finding(
                NAME,
                "grad_dtype",
                methods=("jvp",),
                output=position,
                details={"expected": str(pair.primal.dtype), "found": str(pair.tangent.dtype)},
            )
            for position, pair in enumerate(pairs)
            if pair.tangent is not None and pair.tangent.is_complex() and not pair.primal.is_complex()
        )


def _nonlinear(context: Context, tangents: tuple[Tensor, ...], first: tuple[Tensor | None, ...]) -> tuple[Finding, ...]:
    for scale in (-2.0, 0.0):
        found = _tangents(context.problem, tuple(each * scale for each in tangents))
        expected = [None if each is None else each * scale for each in first]
        place = disagrees(
            where_finite(found, first),
            where_finite(expected, first),
            relative=context.rounding,
            scales=first,
        )
        if place is not None:
            return (context.finding(NAME, "nonlinear_jvp", methods=("jvp",), output=place, details={"scale": scale}),)
    return ()


def _undefined(context: Context, tangents: tuple[Tensor, ...], first: tuple[Tensor | None, ...]) -> tuple[Finding, ...]:
    """Every input in turn without a tangent, against one with a tangent of zeros."""
    count = len(tangents)
    if count < 2:
        return ()
    findings, _ = context.found([partial(_left_out, context, tangents, first, each) for each in range(count)])
    return findings


def _left_out(
    context: Context, tangents: tuple[Tensor, ...], first: tuple[Tensor | None, ...], position: int
) -> Finding | None:
    zeroed = tuple(torch.zeros_like(each) if k == position else each for k, each in enumerate(tangents))
    missing = tuple(None if k == position else each for k, each in enumerate(tangents))
    expected = _tangents(context.problem, zeroed)
    try:
        found = _tangents(context.problem, missing)
    except Exception as error:  # noqa: BLE001 - it worked with zeros
        details = {"undefined": str(position), "message": one_line(error)}
        return context.finding(NAME, "undefined_tangent", methods=("jvp",), input=position, details=details)
    place = disagrees(
        where_finite(found, first), where_finite(expected, first), relative=context.rounding, scales=first
    )
    if place is None:
        return None
    return context.finding(NAME, "undefined_tangent", methods=("jvp",), output=place, input=position)
