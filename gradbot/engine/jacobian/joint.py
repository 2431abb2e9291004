"""All elements of an input moved together: what single elements do not show at a kink.

Where elements are tied, a difference quotient by one of them is the mean of two slopes, and a wrong gradient may equal
it: the least of four equal numbers has the derivative 1/4 by each, the quotient is 1/2, and so is a gradient that is
twice too large. Along the direction in which all grow together the function has one-sided slopes of 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradbot.engine.jacobian.point import Array, Point
from gradbot.engine.jacobian.probe import STEP, natural_scale
from gradbot.engine.jacobian.tolerances import Tolerances

_STEPS = (STEP, STEP / 8)
_NOISE = 64


def contradicted_pairs(point: Point, analytical: Array, tolerances: Tolerances) -> tuple[tuple[int, int], ...]:
    """(output, input) pairs whose derivative with all elements together is outside both one-sided slopes.

    `analytical` is the Jacobian, (rows, columns). At a jump, where slopes grow as the step shrinks, nothing is said.
    """
    pairs = []
    scale = natural_scale(point)
    for index, columns in enumerate(point.column_slices):
        move = np.zeros_like(scale)
        move[columns] = scale[columns]
        outside = np.ones(point.value.size, dtype=np.bool_)
        with np.errstate(all="ignore"):
            along = analytical[:, columns] @ scale[columns]
            for step in _STEPS:
                outside &= _outside(point, along, move, step, tolerances)
        pairs += [(output, index) for output, rows in enumerate(point.row_slices) if outside[rows].any()]
    return tuple(sorted(pairs))


def _outside(point: Point, analytical: Array, move: Array, step: float, tolerances: Tolerances) -> NDArray[np.bool_]:
    ahead = point.values_at(point.position + step * move)
    ahead -= point.value
    behind = point.values_at(point.position - step * move)
    behind = point.value - behind
    low, high = np.minimum(ahead, behind) / step, np.maximum(ahead, behind) / step
    allowed = tolerances.atol * np.abs(move).sum() + 10 * tolerances.rtol * np.maximum(np.abs(low), np.abs(high))
    allowed += _NOISE * point.unit_roundoff * np.abs(point.value) / step
    outside: NDArray[np.bool_] = (analytical < low - allowed) | (analytical > high + allowed)
    # slopes of a jump are as large as the step is small
    return outside & (np.maximum(np.abs(low), np.abs(high)) < 1e-2 / step)
