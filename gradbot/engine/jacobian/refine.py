"""Columns of the numerical Jacobian over several steps, each with an error bar taken from the values themselves.

At every step h the five values f(x + k h), k = -2..2, give the estimates D3 and D5 of order h^2 and h^4 and the fourth
difference. Noise comes from the fourth difference (Moré and Wild, Estimating Computational Noise, 2011, one level),
truncation from |D5 - D3|. A step that is too wide or too narrow so has a wide bar, and the narrowest bar is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradbot.engine.jacobian.point import Array, Point
from gradbot.engine.jacobian.tolerances import Tolerances

_RELATIVE_STEPS = {
    2.0**-53: (2.0**-13, 2.0**-21, 2.0**-9, 2.0**-26),
    2.0**-24: (2.0**-6, 2.0**-9, 2.0**-4, 2.0**-12),
    2.0**-11: (2.0**-3, 2.0**-5, 2.0**-2),
    2.0**-8: (2.0**-2, 2.0**-4, 2.0**-1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """Columns with their error bars, and where at least two steps by themselves say that the analytical one is wrong.

    All are (rows, columns). A bar is infinite where no step gave a finite value.
    """

    estimate: Array
    error_bar: Array
    confirmed: NDArray[np.bool_]


def refine(point: Point, columns: Sequence[int], analytical: Array, tolerances: Tolerances) -> Refined:
    """These columns; `analytical` is (rows, columns) of the same ones.

    Steps are taken until every entry is decided: surely within its tolerance, or surely outside at two steps.
    """
    shape = (point.value.size, len(columns))
    refined = Refined(estimate=np.empty(shape), error_bar=np.empty(shape), confirmed=np.empty(shape, dtype=np.bool_))
    for index, column in enumerate(columns):
        estimate, bar, confirmed = refine_column(point, column, analytical[:, index], tolerances)
        refined.estimate[:, index], refined.error_bar[:, index] = estimate, bar
        refined.confirmed[:, index] = confirmed
    return refined


def refine_column(
    point: Point, column: int, analytical: Array, tolerances: Tolerances, rows: Sequence[int] | None = None
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """One column: the estimate, its error bar, and where two steps confirm that `analytical` is wrong.

    With `rows`, only these rows of it; `analytical` then has an element for each of them.
    """
    kept = slice(None) if rows is None else list(rows)
    best = np.full_like(analytical, np.nan)
    best_bar = np.full_like(analytical, np.inf)
    votes = np.zeros_like(analytical)
    with np.errstate(all="ignore"):
        for step in steps(point, column, tolerances.eps):
            estimate, bar = (each[kept] for each in estimate_with_bar(point, column, step))
            outside = ~(np.abs(analytical - estimate) <= tolerances.allowed(estimate) + bar)
            votes += outside & np.isfinite(estimate)
            better = bar < best_bar
            best = np.where(better, estimate, best)
            best_bar = np.where(better, bar, best_bar)
            error, allowed = np.abs(analytical - best), tolerances.allowed(best)
            wrong = ~(error <= allowed + best_bar) & np.isfinite(best_bar) & (votes >= 2)
            if np.all((error + best_bar <= allowed) | wrong):
                break
    return best, best_bar, wrong


def steps(point: Point, column: int, eps: float) -> Iterator[float]:
    """The caller's step first, then wider and narrower ones, last ones far below a small element's own size."""
    position = abs(float(point.position[column]))
    scale = max(position, 1.0) if math.isfinite(position) else 1.0
    yield eps
    relative = _RELATIVE_STEPS[point.unit_roundoff]
    for each in relative:
        yield each * scale
    if 0.0 < position < 1.0:
        for each in relative:
            yield each * position


def estimate_with_bar(point: Point, column: int, step: float) -> tuple[Array, Array]:
    """D5 and a bound of its error, one value a row; NaN and infinity where a value is not finite."""
    there = point.stored([column] * 5, point.position[column] + step * np.arange(2.0, -3.0, -1.0))
    # an infinite element stays where it is
    moves = there - there[2] if math.isfinite(point.position[column]) else step * np.arange(2.0, -3.0, -1.0)
    h = float(moves[0] - moves[4]) / 4
    if not (h > 0.0 and min(moves[1], -moves[3]) > 0.25 * h):
        return np.full_like(point.value, np.nan), np.full_like(point.value, np.inf)
    far, near, back, far_back = (_value(point, column, there[k]) for k in (0, 1, 3, 4))
    second_order = (near - back) / (moves[1] - moves[3])
    wide = (far - far_back) / (moves[0] - moves[4])
    fourth_order = (4 * second_order - wide) / 3
    difference = np.abs(far - 4 * near + 6 * point.value - 4 * back + far_back) * (1.25 / math.sqrt(70))
    noise = np.maximum(difference, pooled_level(difference, point) * np.abs(point.value))
    # moves that are rounded to the dtype are not evenly spaced; the estimate is off by that share of itself
    uneven = abs(moves[1] / h - 1) + abs(moves[3] / h + 1) + 1e-10
    bar = 6 * noise / h + np.abs(fourth_order - second_order) + uneven * np.abs(fourth_order)
    finite = np.isfinite(fourth_order) & np.isfinite(bar)
    return np.where(finite, fourth_order, np.nan), np.where(finite, bar, np.inf)


def _value(point: Point, column: int, element: float) -> Array:
    position = point.position.copy()
    position[column] = element
    return point.values_at(position)


def pooled_level(difference: Array, point: Point) -> float:
    """The typical noise relative to the value; at least the rounding of the value itself."""
    usable = (point.value != 0) & np.isfinite(difference) & np.isfinite(point.value)
    if not usable.any():
        return point.unit_roundoff
    return max(float(np.median(difference[usable] / np.abs(point.value[usable]))), point.unit_roundoff)
