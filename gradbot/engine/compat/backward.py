"""Analytical Jacobians in backward mode: one vector-Jacobian product a row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradbot.engine.compat.failures import failure, finding, stage
from gradbot.engine.compat.layouts import Coordinates, flat_reals
from gradbot.engine.compat.options import Options
from gradbot.engine.compat.outputs import Outputs
from gradbot.engine.compat.subject import Subject
from gradbot.phrases import phrase


def vjp(
    subject: Subject, outputs: Sequence[Tensor], cotangents: Sequence[Tensor], name: str = "backward"
) -> tuple[Tensor | None, ...]:
    """One gradient for every checked input, as the engine returns it; None where there is no path to it."""
    with stage(name, subject.order):
        return torch.autograd.grad(
            list(outputs), list(subject.tensors), list(cotangents), retain_graph=True, allow_unused=True
        )


def as_row(gradient: Tensor | None, coordinates: Coordinates) -> Tensor:
    """A gradient as a row of a Jacobian: its entries at the coordinates, complex ones as pairs.

    torch's gradient of a complex input is dL/dRe + i dL/dIm, so that its parts are the derivatives by the parts.
    """
    width = len(coordinates.parts)
    if gradient is None:
        return torch.zeros(len(coordinates.positions) * width, dtype=torch.float64, device="cpu")
    if gradient.numel() != coordinates.tensor.numel():
        raise failure(
            phrase("analytical_size", found=tuple(gradient.shape), expected=tuple(coordinates.tensor.shape)),
            finding("wrong_grad_size", "backward"),
        )
    row = flat_reals(gradient)
    if gradient.is_complex() is not coordinates.entries.is_complex():
        row = row.reshape(-1, 2)[:, 0] if gradient.is_complex() else torch.stack([row, torch.zeros_like(row)], 1)
    if coordinates.tensor.layout is torch.strided:
        return row.reshape(-1)
    return row.reshape(-1, width)[coordinates.positions].reshape(-1)


def backward_jacobian(
    subject: Subject, base: Outputs, position: int, coordinates: Sequence[Coordinates], options: Options
) -> tuple[Tensor, ...]:
    """The rows of one output: one matrix an input, (real elements of the output, real directions of the input).

    Everything is computed twice, and the two must agree to `nondet_tol`.

    Raises:
        GradcheckError: they do not, or a gradient has another size than its input.
    """
    first, again = (_rows(subject, base.all[position], coordinates) for _ in range(2))
    _refuse_another(subject, first, again, options, output=base.differentiable.index(position))
    return first


def rows_twice(
    subject: Subject,
    base: Outputs,
    position: int,
    cotangent: Tensor,
    coordinates: Sequence[Coordinates],
    options: Options,
) -> list[Tensor]:
    """The gradient for one cotangent of one output, a row an input, from a backward that gives the same twice.

    Raises:
        GradcheckError: it does not, or a gradient has another size than its input.
    """
    first, again = (vjp(subject, [base.all[position]], [cotangent.clone()]) for _ in range(2))
    rows = [as_row(*pair) for pair in zip(first, coordinates, strict=True)]
    repeated = [as_row(*pair) for pair in zip(again, coordinates, strict=True)]
    _refuse_another(subject, rows, repeated, options, output=base.differentiable.index(position))
    return rows


def _refuse_another(
    subject: Subject, first: Sequence[Tensor], again: Sequence[Tensor], options: Options, *, output: int
) -> None:
    for input, (one, other) in enumerate(zip(first, again, strict=True)):
        spread = largest_difference(one, other)
        if spread > options.nondet_tol:
            raise nondeterministic(subject, "backward", spread, options, output=output, input=input)


def largest_difference(one: Tensor, other: Tensor) -> float:
    """The largest difference between two computations of one thing; infinite where one alone is not a number."""
    same = (one == other) | (one.isnan() & other.isnan())
    difference = torch.where(same, 0.0, (one - other).abs()).nan_to_num(torch.inf, torch.inf)
    return float(difference.max()) if difference.numel() else 0.0


def nondeterministic(
    subject: Subject, mode: str, spread: float, options: Options, *, output: int | None, input: int | None
) -> Exception:
    """The error for a derivative that is another one when computed again."""
    code = "nondeterministic_backward" if mode == "backward" else "nondeterministic_jvp"
    text = phrase(code, largest=spread, nondet_tol=options.nondet_tol)
    return failure(
        f"{text}\n\n{phrase('nondeterministic_note')}",
        finding(
            "nondeterministic",
            mode,
            output=output,
            input=input,
            details={"largest": spread, "nondet_tol": options.nondet_tol, "order": subject.order},
        ),
    )


def _rows(subject: Subject, output: Tensor, coordinates: Sequence[Coordinates]) -> tuple[Tensor, ...]:
    parts = (1, 1j) if output.is_complex() else (1,)
    zeros = torch.zeros_like(output, memory_format=torch.legacy_contiguous_format)
    rows: list[list[Tensor]] = [[] for _ in coordinates]
    for element in range(output.numel()):
        for part in parts:
            # a fresh one each time: a backward may keep it or write into it
            cotangent = zeros.clone()
            cotangent.view(-1)[element].fill_(part)
            gradients = vjp(subject, [output], [cotangent])
            for own, gradient, each in zip(rows, gradients, coordinates, strict=True):
                own.append(as_row(gradient, each))
    return tuple(
        torch.stack(own)
        if own
        else torch.zeros(0, len(each.positions) * len(each.parts), dtype=torch.float64, device="cpu")
        for own, each in zip(rows, coordinates, strict=True)
    )
