"""Central differences, one column at a time."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import torch
from torch import Tensor

from gradbot.engine.jacobian.point import Point


def stencil(point: Point, column: int, step: float, multiples: Sequence[int]) -> tuple[Tensor, list[float]]:
    """f where one element of the inputs is moved by multiples of a step.

    Returns the values, (multiples, rows) in float64, and by how much the element moved after rounding to its dtype.
    """
    moved = [each.detach().clone() for each in point.problem.inputs]
    which = bisect.bisect_right(point.input_offsets, column) - 1
    index = torch.tensor([column - point.input_offsets[which]], device=moved[which].device)
    start = moved[which].take(index)
    values, moves = [], []
    for multiple in multiples:
        there = start + multiple * step
        moved[which].put_(index, there)
        moves.append(float(there.double() - start.double()))
        values.append(point.values_at(moved).clone())
    return torch.stack(values), moves


def columns(point: Point, which: Sequence[int], step: float) -> tuple[Tensor, Tensor]:
    """(f(x + step) - f(x - step)) / (2 step) in the elements `which` of the inputs.

    Returns the Jacobian's columns, (rows, columns), and a bound of their rounding error of the same shape.
    """
    estimate = torch.zeros(point.value.numel(), len(which), dtype=torch.float64)
    noise = torch.zeros_like(estimate)
    for position, column in enumerate(which):
        values, moves = stencil(point, column, step, (1, -1))
        width = moves[0] - moves[1]
        if width == 0.0:
            estimate[:, position] = torch.nan
            noise[:, position] = torch.inf
            continue
        estimate[:, position] = (values[0] - values[1]) / width
        noise[:, position] = 8 * point.unit_roundoff * values.abs().amax(0) / abs(width)
    return estimate, noise
