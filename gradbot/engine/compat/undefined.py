"""Undefined (None) grad_outputs and tangents must be treated as zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.compat.advice import warn
from gradbot.engine.compat.failures import failure, finding, stage
from gradbot.engine.compat.forward import jvp, random_tangents
from gradbot.engine.compat.layouts import Coordinates, flat_reals
from gradbot.engine.compat.options import Options
from gradbot.engine.compat.outputs import Outputs, call
from gradbot.engine.compat.subject import Subject
from gradbot.phrases import phrase


def refuse_undefined_grads(subject: Subject, base: Outputs) -> None:
    """Runs the backward with no grad_output defined, then with one at a time undefined and the others zero.

    Raises:
        GradcheckError: the backward raises a RuntimeError, or an input grad is not zero.
        Exception: anything else that it raises.
    """
    count = len(base.differentiable)
    # None as the one that is undefined: all of them
    for undefined in [None, *(range(count) if count > 1 else [])]:
        again = call(subject, subject.arguments)
        outputs = [
            _undefined(again.all[position]) if undefined in (None, number) else again.all[position]
            for number, position in enumerate(again.differentiable)
        ]
        _refuse(subject, outputs, undefined)


def _refuse(subject: Subject, outputs: Sequence[Tensor], undefined: int | None) -> None:
    zeros = [torch.zeros_like(each, memory_format=torch.legacy_contiguous_format) for each in outputs]
    try:
        with stage("undefined_grad", subject.order):
            gradients = torch.autograd.grad(list(outputs), list(subject.tensors), zeros, allow_unused=True)
    except RuntimeError as error:
        warn(phrase("undefined_warning"))
        raise failure(
            phrase("undefined_raises"),
            finding("undefined_grad", "undefined_grad", output=undefined, details={"message": str(error)[:500]}),
        ) from error
    for input, gradient in enumerate(gradients):
        if gradient is not None and not flat_reals(gradient).eq(0).all():
            warn(phrase("undefined_warning"))
            raise failure(
                phrase("undefined_nonzero"),
                finding("undefined_grad", "undefined_grad", output=undefined, input=input),
            )


def _undefined(output: Tensor) -> Tensor:
    functions: Any = torch._C._functions
    result: Tensor = functions.UndefinedGrad()(output)
    return result


def refuse_undefined_tangents(
    subject: Subject, base: Outputs, coordinates: Sequence[Coordinates], options: Options, generator: torch.Generator
) -> None:
    """Leaves the tangent of one input at a time undefined and compares with a tangent of zeros there.

    Raises:
        GradcheckError: the outputs' tangents differ.
        Exception: whatever the jvp raises.
    """
    if len({id(each) for each in subject.tensors}) < 2:
        return  # without any tangent, forward mode does not run
    tangents = random_tangents(subject, coordinates, generator)
    for input, position in enumerate(subject.checked):
        same = [each for each in subject.checked if subject.arguments[each] is subject.arguments[position]]
        others = {each: tangent for each, tangent in tangents.items() if each not in same}
        expected = jvp(subject, base, others, options).rows
        undefined: dict[int, Tensor | None] = {**others, **dict.fromkeys(same)}
        found = jvp(subject, base, undefined, options, name="undefined_tangent").rows
        if not torch.allclose(found, expected, equal_nan=True):
            rows = next(own for own in base.rows.values() if not torch.allclose(found[own], expected[own]))
            output = list(base.rows.values()).index(rows)
            raise failure(
                phrase("undefined_tangent", output=output, input=input, found=found[rows], expected=expected[rows]),
                finding("undefined_tangent", "undefined_tangent", output=output, input=input),
            )
