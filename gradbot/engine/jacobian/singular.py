"""Where no step gives a derivative because there is none: kinks and jumps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradbot.engine.jacobian.point import Array, Point

_SHRINK = 16.0


def singular_rows(point: Point, column: int, step: float) -> NDArray[np.bool_]:
    """The rows of f that have a kink or a jump at the point, along one element of the inputs.

    The second difference f(x+h) - 2 f(x) + f(x-h) falls with h^2 where f is smooth, with h at a kink, and stays at a
    jump. It is compared at two steps, where it stands out of the rounding of f.
    """
    wide, narrow = (_second_difference(point, column, each) for each in (step, step / _SHRINK))
    rounding = 64 * point.unit_roundoff * np.abs(point.value)
    singular: NDArray[np.bool_] = (narrow > rounding) & (wide < _SHRINK**1.5 * narrow)
    return singular


def _second_difference(point: Point, column: int, step: float) -> Array:
    total = -2 * point.value
    for move in (step, -step):
        position = point.position.copy()
        position[column] += move
        total += point.values_at(position)
    return np.nan_to_num(np.abs(total), nan=0.0, posinf=0.0)
