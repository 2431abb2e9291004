"""Columns of the numerical Jacobian over several steps, each with an error bar taken from the values themselves.

At every step h the five values f(x + k h), k = -2..2, give the estimates D3 and D5 of order h^2 and h^4 and the fourth
difference. Noise comes from the fourth difference (Moré and Wild, Estimating Computational Noise, 2011, one level),
truncation from |D5 - D3|. A step that is too wide or too narrow so has a wide bar, and the narrowest bar is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.jacobian.loop import stencil
from gradbot.engine.jacobian.point import Point

_RELATIVE_STEPS = {
    2.0**-53: (2.0**-13, 2.0**-21, 2.0**-9, 2.0**-26),
    2.0**-24: (2.0**-6, 2.0**-9, 2.0**-4, 2.0**-12),
    2.0**-11: (2.0**-3, 2.0**-5, 2.0**-2),
    2.0**-8: (2.0**-2, 2.0**-4, 2.0**-1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """Columns with their error bars, and where at least two steps by themselves say that the analytical one is wrong.

    `estimate`, `error_bar`, `confirmed` are (rows, columns). A bar is infinite where no step gave a finite value.
    """

    estimate: Tensor
    error_bar: Tensor
    confirmed: Tensor


def refine(point: Point, which: Sequence[int], analytical: Tensor, tolerance: Tensor, eps: float) -> Refined:
    """The columns `which`; `analytical` and `tolerance` are (rows, columns) of the same columns.

    Steps are taken until every entry is decided: surely within its tolerance, or surely outside at two steps.
    """
    estimates, bars, confirmations = [], [], []
    for position, column in enumerate(which):
        refined = _column(point, column, analytical[:, position], tolerance[:, position], eps)
        estimates.append(refined.estimate)
        bars.append(refined.error_bar)
        confirmations.append(refined.confirmed)
    if not estimates:
        empty = torch.zeros(point.value.numel(), 0, dtype=torch.float64)
        return Refined(estimate=empty, error_bar=empty.clone(), confirmed=empty.bool())
    return Refined(
        estimate=torch.stack(estimates, 1), error_bar=torch.stack(bars, 1), confirmed=torch.stack(confirmations, 1)
    )


def _column(point: Point, column: int, analytical: Tensor, tolerance: Tensor, eps: float) -> Refined:
    best = torch.full_like(point.value, torch.nan)
    best_bar = torch.full_like(point.value, torch.inf)
    votes = torch.zeros_like(point.value)
    for step in steps(point, column, eps):
        estimate, bar = estimate_with_bar(point, column, step)
        error = (analytical - estimate).abs()
        votes += ~(error <= tolerance + bar) & estimate.isfinite()
        better = bar < best_bar
        best = torch.where(better, estimate, best)
        best_bar = torch.where(better, bar, best_bar)
        error = (analytical - best).abs()
        right = error + best_bar <= tolerance
        wrong = ~(error <= tolerance + best_bar) & best_bar.isfinite() & (votes >= 2)
        if bool((right | wrong).all()):
            break
    wrong = ~((analytical - best).abs() <= tolerance + best_bar) & best_bar.isfinite()
    return Refined(estimate=best, error_bar=best_bar, confirmed=wrong & (votes >= 2))


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


def estimate_with_bar(point: Point, column: int, step: float) -> tuple[Tensor, Tensor]:
    """D5 and a bound of its error, one value a row; NaN and infinity where a value is not finite."""
    (far, near, back, far_back), moves = stencil(point, column, step, (2, 1, -1, -2))
    h = (moves[0] - moves[3]) / 4
    if h == 0.0 or min(moves[1], -moves[2]) <= 0.25 * h:
        return torch.full_like(point.value, torch.nan), torch.full_like(point.value, torch.inf)
    second_order = (near - back) / (moves[1] - moves[2])
    wide = (far - far_back) / (moves[0] - moves[3])
    fourth_order = (4 * second_order - wide) / 3
    difference = (far - 4 * near + 6 * point.value - 4 * back + far_back).abs() * (1.25 / math.sqrt(70))
    noise = torch.maximum(difference, _pooled_level(difference, point) * point.value.abs())
    # moves that are rounded to the dtype are not evenly spaced; the estimate is off by that share of itself
    uneven = abs(moves[1] / h - 1) + abs(moves[2] / h + 1)
    bar = 6 * noise / h + (fourth_order - second_order).abs() + uneven * fourth_order.abs()
    bar = bar + 1e-10 * fourth_order.abs()
    finite = fourth_order.isfinite() & bar.isfinite()
    return torch.where(finite, fourth_order, torch.nan), torch.where(finite, bar, torch.inf)


def _pooled_level(difference: Tensor, point: Point) -> float:
    """The typical noise relative to the value; at least the rounding of the value itself."""
    usable = (point.value != 0) & difference.isfinite() & point.value.isfinite()
    if not bool(usable.any()):
        return point.unit_roundoff
    level = float((difference[usable] / point.value[usable].abs()).median())
    return max(level, point.unit_roundoff)
