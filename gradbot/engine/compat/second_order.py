"""`gradgradcheck`: the backward as a function of its own, checked like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.compat.agreement import Scene
from gradbot.engine.compat.constant import refuse_variation
from gradbot.engine.compat.failures import GradcheckError, failure, finding, stage
from gradbot.engine.compat.first_order import SEED, check, measure, with_columns
from gradbot.engine.compat.linearity import refuse_nonlinear_backward
from gradbot.engine.compat.options import Options
from gradbot.engine.compat.outputs import Outputs, call
from gradbot.engine.compat.subject import Subject, as_tuple, is_checked, subject_of
from gradbot.engine.double_backward_cause import refuses_twice
from gradbot.phrases import phrase


def check_second_order(
    func: Callable[..., object], inputs: object, grad_outputs: object, options: Options, *, noncontiguous: bool
) -> None:
    """Checks the derivatives of the gradient of `func` by the inputs and by the grad_outputs.

    What is checked is the backward as it is written; whether it is the right one for `func` is for the first order to
    say. Two things are looked at besides: that the backward is linear in its grad_outputs, and, where no gradient is
    there to differentiate, that `func` is constant indeed, so that nothing passes unchecked.

    Raises:
        As `first_order.check`.
    """
    first = subject_of(func, inputs, warn=False)
    base = call(first, first.arguments)
    if not base.differentiable:
        _require_constant(first, base, options, "no_diff_outputs_nonzero", " as no output requires grad")
        return
    given = _random_grad_outputs(base, noncontiguous) if grad_outputs is None else as_tuple(grad_outputs)
    gradient = _gradient(first, given)
    second = subject_of(gradient, first.arguments + given, order=2)
    returned: Any = gradient(*second.arguments)
    if not returned:
        _require_constant(first, base, options, "jacobian_mismatch_backward", " as all input grads are None")
        return
    try:
        check(second, options)
    except GradcheckError as error:
        if error.findings[0].kind.startswith("jacobian_mismatch") and any(refuses_twice(each) for each in returned):
            raise _not_twice(error) from error
        raise
    if options.check_backward_ad:
        measured = measure(first, base, options)
        generator = torch.Generator().manual_seed(SEED)
        refuse_nonlinear_backward(first, base, measured.coordinates, options, generator)


def _gradient(first: Subject, grad_outputs: tuple[object, ...]) -> Callable[..., tuple[Tensor, ...]]:
    """The backward of `first` as a function of its inputs and grad_outputs; grads that are None are left out."""
    checked = frozenset(first.checked)
    checked_grads = frozenset(i for i, each in enumerate(grad_outputs) if is_checked(each))
    count = len(grad_outputs)

    def gradient(*arguments: Any) -> tuple[Tensor, ...]:
        # forward mode comes with detached inputs: they need a graph of their own
        inputs = [x.requires_grad_() if i in checked else x for i, x in enumerate(arguments[:-count])]
        cotangents = [x.requires_grad_() if i in checked_grads else x for i, x in enumerate(arguments[-count:])]
        with stage("forward", 2):
            returned = as_tuple(first.func(*inputs))
            outputs = [each for each in returned if is_checked(each)]
        by = [inputs[position] for position in first.checked]
        with stage("first_backward", 2):
            grads = torch.autograd.grad(outputs, by, cotangents, create_graph=True, allow_unused=True)
        return tuple(each for each in grads if each is not None)

    return gradient


def _random_grad_outputs(base: Outputs, noncontiguous: bool) -> tuple[Tensor, ...]:
    """Values in [-1, 1), in both parts where complex, that require grad."""
    generator = torch.Generator().manual_seed(SEED)
    return tuple(_random_like(base.all[position], generator, noncontiguous) for position in base.differentiable)


def _random_like(output: Tensor, generator: torch.Generator, noncontiguous: bool) -> Tensor:
    shape = (*output.shape, 2) if output.is_complex() else tuple(output.shape)
    values = 2 * torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu") - 1
    if output.is_complex():
        values = torch.view_as_complex(values)
    values = values.to(dtype=output.dtype, device=output.device)
    if noncontiguous and values.numel() > 1:
        values = values.repeat_interleave(2, dim=-1)[..., ::2]
    return values.requires_grad_()


def _require_constant(first: Subject, base: Outputs, options: Options, kind: str, words: str) -> None:
    measured = with_columns(measure(first, base, options))
    scene = Scene(subject=first, base=base, options=options)
    refuse_variation(scene, measured.coordinates, measured.numericals, kind, words)


def _not_twice(error: GradcheckError) -> GradcheckError:
    found = error.findings[0]
    kind = finding("not_twice_differentiable", found.check, output=found.output, input=found.input)
    return failure(f"{error}\n{phrase('once_differentiable')}", kind, *error.findings)
