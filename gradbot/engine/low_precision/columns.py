"""A disagreement of the probe, looked at one element of the input at a time.

Along a joint direction one element beside a pole, or two that change places, spoil the difference for all others. Alone
such an element shows a wide bar, and only what stands out of a bar of its own, by as much at every step, is wrong.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradbot.engine.directional import Point
from gradbot.engine.low_precision.stencil import noise_of, sample_along

_MOST = 48
_SIGMAS = 5.0
_APART, _BENT, _LEAST_STEPS = 0.1, 4.0, 2


def some_column_wrong(
    point: Point,
    index: int,
    cotangent: Tensor,
    gradient: Tensor,
    steps: tuple[float, ...],
    roundoff: float,
    resolution: float,
    generator: torch.Generator,
) -> bool:
    """Whether for some element of input `index` vᵀJ, for one cotangent v, is another than `gradient`, and by as much,
    at every step that is not too wide for the element; two at least.

    The largest elements of the gradient are looked at, and others at random. `resolution` is the relative error that
    the dtype lets tell at all.
    """
    for column in _chosen(gradient, generator):
        errors = []
        for step in steps:
            error, bar = _column(point, index, column, cotangent, float(gradient[column]), step, roundoff)
            if bar == math.inf:
                continue
            errors.append(error)
            if not abs(error) > bar + resolution * abs(float(gradient[column])):
                break
        else:
            if len(errors) >= _LEAST_STEPS and _alike(errors):
                return True
    return False


def _alike(errors: list[float]) -> bool:
    """A wrong rule is off by the same whatever the step; what a step crosses is not."""
    smallest, largest = min(errors, key=abs), max(errors, key=abs)
    return smallest * largest > 0 and abs(largest - smallest) <= _APART * abs(smallest)


def _chosen(gradient: Tensor, generator: torch.Generator) -> list[int]:
    count = gradient.numel()
    if count <= _MOST:
        return list(range(count))
    largest = gradient.abs().nan_to_num(0.0, 0.0, 0.0).topk(_MOST // 2).indices.tolist()
    return list(dict.fromkeys([*largest, *torch.randperm(count, generator=generator)[: _MOST // 2].tolist()]))


def _column(
    point: Point, index: int, column: int, cotangent: Tensor, analytical: float, step: float, roundoff: float
) -> tuple[float, float]:
    """The error of one element of the gradient, and the bar that noise and truncation of the difference leave it.

    The bar is infinite where the step tells nothing.
    """
    sample = sample_along(point, point.coordinate(index, column), step)
    taken = sample.taken[index]
    length = 0.0 if taken is None else float(taken[column])
    if not length:
        return 0.0, math.inf
    # rows that do not depend on the element at all add no noise
    moved = (sample.fourth != 0) | (sample.five != 0)
    noise = noise_of(sample.fourth[None], point.values.abs(), roundoff) * moved
    gap = (sample.five - sample.three).abs()
    bar = _SIGMAS * float((cotangent * noise).norm()) + float((cotangent * gap).abs().sum())
    error = analytical - float(cotangent @ sample.five) / length
    # beside a pole f here is nothing like f a step away on either side: the step is too wide to tell anything
    weight = cotangent.abs() * moved
    bend = float(weight @ sample.fourth.abs())
    beyond = bend > 0.5 * float(weight @ point.values.abs()) and bend > _BENT * float(weight @ sample.five.abs())
    if beyond or not math.isfinite(bar + error):
        return error, math.inf
    return error, bar / abs(length)
