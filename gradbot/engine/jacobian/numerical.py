"""Central differences, (f(x + h) - f(x - h)) / 2h, one column at a time or many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradbot.engine.jacobian.point import Array, Point

_BENT = 0.01
"""The difference of one-sided slopes, relative to the largest derivative, from which on it is a kink's: that of a
smooth function is as small as the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Columns of the numerical Jacobian, (rows, columns), and a bound of the rounding error in each row of each.

    `step` is what was asked for; the differences are divided by what the dtype made of it. `bent`: some one-sided
    differences differ as those of a smooth function do not.
    """

    estimate: Array
    noise: Array
    bent: bool = False


def by_loop(point: Point, columns: Sequence[int], step: float) -> Differences:
    """One column after the other, two evaluations each."""
    plus = np.empty((len(columns), point.value.size))
    minus = np.empty_like(plus)
    for index, column in enumerate(columns):
        for values, move in ((plus, step), (minus, -step)):
            position = point.position.copy()
            position[column] += move
            values[index] = point.values_at(position)
    return _differences(point, columns, step, plus, minus)


def by_stack(point: Point, columns: Sequence[int], step: float) -> Differences:
    """All columns in one batched evaluation. Raises what batching raises."""
    count = len(columns)
    positions = np.repeat(point.position[None, :], 2 * count, 0)
    each = np.arange(count)
    positions[each, columns] += step
    positions[count + each, columns] -= step
    values = point.stacked_values(positions)
    return _differences(point, columns, step, values[:count], values[count:])


def _differences(point: Point, columns: Sequence[int], step: float, plus: Array, minus: Array) -> Differences:
    there = point.position[list(columns)]
    with np.errstate(all="ignore"):
        width = point.stored(columns, there + step) - point.stored(columns, there - step)
        width[np.isnan(width)] = 2 * step  # an infinite element stays where it is
        estimate = (plus - minus) / width[:, None]
        noise = np.maximum(np.abs(plus), np.abs(minus)) * (8 * point.unit_roundoff / np.abs(width))[:, None]
        bend = np.abs((plus - point.value) + (minus - point.value)) / np.abs(width)[:, None] - 4 * noise
        bent = bool(bend.max(initial=0.0) > _BENT * (np.abs(estimate).max(initial=0.0) + step))
    return Differences(estimate=estimate.T, noise=noise.T, bent=bent)
