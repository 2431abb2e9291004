"""How sure a rate is that was seen in a few repeats."""

from __future__ import annotations

import math
from collections.abc import Callable


def clopper_pearson(events: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of a binomial rate (Clopper and Pearson 1934), found by bisection of the binomial tail."""
    if trials == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    # P(X >= events | p) rises with p, P(X <= events | p) falls
    low = 0.0 if events == 0 else _root(lambda p: 1 - _at_most(events - 1, trials, p) - tail)
    high = 1.0 if events == trials else _root(lambda p: tail - _at_most(events, trials, p))
    return low, high


def _at_most(events: int, trials: int, rate: float) -> float:
    return sum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(events + 1))


def _root(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
