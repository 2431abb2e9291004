"""Why no step gives a derivative: a kink, a jump, or noise."""

from __future__ import annotations

import numpy as np

from gradbot.engine.jacobian.point import Point

_SHRINK = 16.0


def nature(point: Point, row: int, column: int, eps: float) -> str:
    """A code of `messages.REASONS`: "kink", "jump" or "precision".

    The second difference f(x+h) - 2 f(x) + f(x-h) falls with h^2 where f is smooth, with h at a kink, and stays at a
    jump. It is compared at two steps, where it stands out of the rounding of f.
    """
    wide, narrow = (_second_difference(point, row, column, step) for step in (eps, eps / _SHRINK))
    rounding = 64 * point.unit_roundoff * abs(float(point.value[row]))
    if not narrow > rounding:
        return "precision"
    ratio = wide / narrow
    if ratio < _SHRINK**0.5:
        return "jump"
    return "kink" if ratio < _SHRINK**1.5 else "precision"


def _second_difference(point: Point, row: int, column: int, step: float) -> float:
    total = -2 * float(point.value[row])
    for move in (step, -step):
        position = point.position.copy()
        position[column] += move
        total += float(point.values_at(position)[row])
    return abs(total) if np.isfinite(total) else 0.0
