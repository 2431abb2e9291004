"""Whether a vjp is linear in its cotangent, and a jvp in its tangent.

Unit vectors, which a full Jacobian is formed from, cannot tell g from g |g|, nor from one that is clipped at 1. Two
vectors of unlike magnitudes can.
"""

from __future__ import annotations

import numpy as np

from gradbot.engine.jacobian.form import signed_uniform
from gradbot.engine.jacobian.forward import push_forward
from gradbot.engine.jacobian.point import Point
from gradbot.engine.jacobian.reverse import pull_back
from gradbot.engine.jacobian.tolerances import Tolerances

_LARGE = 16.0


def is_linear(point: Point, direction: str, generator: np.random.Generator, tolerances: Tolerances) -> bool:
    """Whether two vectors together give the sum of what they give alone, and the negative of what their negative
    gives, within the tolerances."""
    apply, size = (push_forward, point.position.size) if direction == "forward" else (pull_back, point.value.size)
    first, second = signed_uniform(generator, (2, size))
    first *= _LARGE
    one, other, both = apply(point, first), apply(point, second), apply(point, first + second)
    turned = apply(point, -first - second)
    with np.errstate(all="ignore"):
        error = np.maximum(np.abs(one + other - both), np.abs(both + turned))
        allowed = tolerances.rtol * (np.abs(one) + np.abs(other)) + tolerances.atol
        scale = tolerances.rtol * max(float(np.nan_to_num(np.abs(both)).max(initial=0.0)), 0.0)
        linear = (error <= allowed + scale) | ~np.isfinite(one + other)
    return bool(linear.all())
