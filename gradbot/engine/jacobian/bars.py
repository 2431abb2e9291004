"""How well a directional difference is known, row by row.

For d = f(x + h u) - f(x - h u) each row's bar adds up
- noise, from the fourth difference (Moré and Wild, Estimating Computational Noise, 2011, one level), from the typical
  noise of all rows relative to their values, and never below the rounding of the value itself;
- truncation, from the differences at h and 2 h;
- what backward formulas lose by rounding, as a share of the row's own signal;
- a floor far below what `atol` allows, for rows that are zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradbot.engine.jacobian.point import Array, Point

_TINY = 1e-300
ROUNDING_SHARE = 1e-7
"""What backward formulas may lose by rounding, of the signal."""
_SIGMAS = 6.0
_SAMPLE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """`bar` bounds the error of each row's difference; `signal` is the difference's typical size.

    Rows that are not `finite` have no bar and take no part.
    """

    bar: Array
    signal: Array
    finite: NDArray[np.bool_]


def row_bars(point: Point, step: float, differences: Array, fourth: Array, third: Array) -> Bars:
    """Bars of `differences`, (directions, rows).

    `fourth` is f(x+2hu) - 4 f(x+hu) + 6 f(x) - 4 f(x-hu) + f(x-2hu), `third` the difference at 2 h less twice that at h
    over 6, which is the truncation error of the difference at h.
    """
    finite = np.isfinite(fourth)
    finite &= np.isfinite(third)
    for each in differences:
        finite &= np.isfinite(each)
    if not finite.all():
        differences, fourth, third = (np.where(finite, each, 0.0) for each in (differences, fourth, third))
    size = np.abs(point.value) if finite.all() else np.where(finite, np.abs(point.value), 0.0)
    noise = np.abs(fourth)
    noise *= 1.25 / math.sqrt(70)
    least = 0.6 * point.unit_roundoff
    floor, level = 0.0, least
    present = size > 0
    if present.any():
        values = size if present.all() else size[present]
        level = max(1.5 * median(noise[present] / values), least)
        floor = least * median(values)
    noisy = noise[noise > 0]
    if noisy.size:
        floor = max(floor, median(noisy))
    noise = np.maximum(np.maximum(noise, level * size), floor)
    signal = np.abs(differences).mean(0)
    strongest = float(signal.max(initial=0.0))
    bar = noise * (_SIGMAS * math.sqrt(2))
    bar += 3 * np.abs(third)
    bar += ROUNDING_SHARE * signal
    bar += ROUNDING_SHARE * min(step, strongest) + point.unit_roundoff * step * 1e-2 + _TINY
    return Bars(bar=bar, signal=signal, finite=finite)


def median(values: Array) -> float:
    """The upper median, of a spread sample where there are many: only the typical size matters here.

    NumPy's own costs ten times as much on small arrays.
    """
    if values.size > 2 * _SAMPLE:
        values = values[:: values.size // _SAMPLE]
    middle = values.size // 2
    return float(np.partition(values, middle)[middle])
