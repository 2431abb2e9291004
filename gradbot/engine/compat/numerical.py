"""Numerical Jacobians: central differences with the caller's step, one column for every real direction of an entry."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.compat.failures import carrying, finding
from gradbot.engine.compat.layouts import Coordinates
from gradbot.engine.compat.outputs import Outputs, call, refuse_change
from gradbot.engine.compat.subject import Subject

ROUNDING = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 2.0**-23, torch.float64: 2.0**-52}
"""The distance from 1 to the next number, per real dtype."""

SHRINKS = (2.0**-6, 2.0**-12, 2.0**-18, 2.0**-24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One real direction: entry `which` of an input moves along `part`, 1 or i."""

    which: int
    part: complex


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerical:
    """Derivatives of all floating outputs by one input: rows as in `Outputs`, one column a direction.

    `rounding` bounds, per entry, what rounding of the outputs alone does to the difference quotient.
    """

    columns: tuple[Column, ...]
    jacobian: Tensor
    rounding: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The outputs on both sides of the inputs, and how far apart these sides really are."""

    upper: Tensor
    lower: Tensor
    width: float


def columns(coordinates: Coordinates) -> tuple[Column, ...]:
    """The directions of all entries in order, real part before imaginary part."""
    return tuple(
        Column(which=which, part=part) for which in range(coordinates.entries.numel()) for part in coordinates.parts
    )


def rounding_of(tensor: Tensor) -> float:
    """The relative rounding of a tensor's dtype."""
    return ROUNDING.get(tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype, 2.0**-52)


def numerical(subject: Subject, base: Outputs, coordinates: Coordinates, eps: float) -> Numerical:
    """The Jacobian by central differences at step `eps`.

    Where the step drowns in the rounding of the input itself, it is widened. Where the function refuses the moved
    input although it takes the input as it is, the step is shortened.

    Raises:
        AssertionError: number, shape or dtype of the outputs changes with the step.
        Exception: whatever the function raises, if shorter steps do not help.
    """
    own = columns(coordinates)
    noise = unit_in_last_place(base)
    if not own:
        nothing = torch.zeros(len(noise), 0, dtype=torch.float64, device="cpu")
        return Numerical(columns=own, jacobian=nothing, rounding=nothing)
    steps = [_moved_by(subject, base, coordinates, each, first_step(coordinates, each, eps)) for each in own]
    widths = torch.tensor([each.width for each in steps], dtype=torch.float64, device="cpu")
    rises = difference(torch.stack([each.upper for each in steps], 1), torch.stack([each.lower for each in steps], 1))
    return Numerical(columns=own, jacobian=rises / widths, rounding=noise.unsqueeze(1) / widths)


def first_step(coordinates: Coordinates, column: Column, eps: float) -> float:
    """`eps`, or a step on the scale of the entry where `eps` is lost in its rounding."""
    size = abs(coordinates.entries[coordinates.index(column.which)].item())
    rounding = rounding_of(coordinates.entries)
    if not math.isfinite(size) or eps >= 64 * rounding * size:
        return eps
    return float(2.0 ** round(math.log2(rounding) / 3)) * size


def difference(upper: Tensor, lower: Tensor) -> Tensor:
    """`upper - lower`, where equal values, infinite ones too, differ by nothing."""
    return torch.where(upper == lower, 0.0, upper - lower)


def evaluate(subject: Subject, coordinates: Coordinates) -> Outputs:
    """The function at the inputs as they are at this moment, with the stand-in for the tensor that is moved."""
    return call(subject, subject.with_tensor(coordinates.tensor, coordinates.passed()))


def _moved_by(subject: Subject, base: Outputs, coordinates: Coordinates, column: Column, step: float) -> Step:
    try:
        return _central(subject, base, coordinates, column, step)
    except Exception as error:
        if "Mismatch in shape: grad_output" in str(error):
            raise carrying(error, finding("output_depends_on_perturbation", "inputs")) from None
        if any(each.kind != "user_error_in_forward" for each in getattr(error, "findings", ())):
            raise
        return _shorter(subject, base, coordinates, column, step, error)


def _shorter(
    subject: Subject, base: Outputs, coordinates: Coordinates, column: Column, step: float, error: Exception
) -> Step:
    """Shorter steps where the function refuses to be moved, such as at the edge of its domain."""
    for factor in (1.0, *SHRINKS):
        # user code may raise anything; the first error is the one to tell
        with contextlib.suppress(Exception):
            found = _central(subject, base, coordinates, column, step * factor)
            if factor == 1.0:
                break  # it raised once and not again: no edge of a domain, but an error of its own
            return found
    raise error


def _central(subject: Subject, base: Outputs, coordinates: Coordinates, column: Column, step: float) -> Step:
    taken, found = [], []
    for sign in (1, -1):
        with coordinates.moved(column.which, sign * step * column.part) as value:
            outputs = evaluate(subject, coordinates)
            if outputs.signature != base.signature:
                where = f"on index {coordinates.index(column.which)} by {step}"
                refuse_change(base.signature, outputs.signature, where)
            found.append(outputs.values)
            taken.append(value)
    width = abs(taken[0] - taken[1])
    # an entry that is infinite, or on which the step is lost, has not moved
    if not (math.isfinite(width) and width > 0):
        width = 2 * abs(step)
    return Step(upper=found[0], lower=found[1], width=width)


def unit_in_last_place(base: Outputs) -> Tensor:
    """Per row, a unit in the last place of the output, in the output's own precision."""
    noise = base.values.abs()
    for position, rows in base.rows.items():
        noise[rows] *= rounding_of(base.all[position])
    return noise.nan_to_num(0.0, 0.0, 0.0)
