"""Functions that draw random numbers: what a gradient that is wrong under one draw may be nevertheless.

An estimator (a trace by random probes, say) has a gradient that estimates as well: it is the derivative of the forward
on average, and under no single draw.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import torch

from gradbot.engine.directional import REFUSALS, Point, signed_uniform
from gradbot.engine.prepare import Prepared, under_seed

_DRAWS = (16, 32, 64, 128, 256)
_STEP = 2.0**-14
_DIRECTIONS = 2
_RULED_OUT = 6.0
"""Standard errors: a mean difference beyond this is no chance."""
_USUAL = 3.0
_RESOLVED = 0.15
"""Of the derivative: the standard error at which a mean difference would have shown a wrong factor."""
_SECONDS = 60.0
"""What more draws may take in all; the first few are always made."""


def right_on_average(prepared: Prepared, pairs: tuple[tuple[int, int], ...], seed: int = 0) -> bool:
    """Whether the gradient of the wrong pairs of output and input is that of the forward on average over draws.

    Not where the backward draws random numbers itself: a mask drawn anew is wrong, and right on average.
    """
    if prepared.problem.seed is None:
        return False
    generator = torch.Generator().manual_seed(seed)
    try:
        point = Point.of(prepared.problem)
        return not _backward_draws(point, generator) and _are_means(prepared, point, pairs, generator)
    except REFUSALS:
        return False


def _backward_draws(point: Point, generator: torch.Generator) -> bool:
    cotangent = signed_uniform(point.values.numel(), generator)
    first, again = point.vjp(cotangent), point.vjp(cotangent)
    return not all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def _are_means(
    prepared: Prepared, point: Point, pairs: tuple[tuple[int, int], ...], generator: torch.Generator
) -> bool:
    """Whether vᵀJu, analytical and numerical, agree in the mean for random v and two random u over the wrong pairs."""
    cotangent = torch.zeros_like(point.values)
    for output in {output for output, _ in pairs}:
        cotangent[point.rows(output)] = signed_uniform(point.sizes[output], generator)
    wrong = {index for _, index in pairs}
    directions = [
        tuple(along if index in wrong else None for index, along in enumerate(point.direction(generator)))
        for _ in range(_DIRECTIONS)
    ]
    gaps: list[list[float]] = [[] for _ in directions]
    slopes: list[list[float]] = [[] for _ in directions]
    began, done = time.perf_counter(), 0
    for count in _DRAWS:
        if done and (time.perf_counter() - began) * count / done > _SECONDS:
            return False
        for number in range(done, count):
            here = replace(point, problem=under_seed(prepared, number))
            here = replace(here, linearization=here.problem.linearize())
            gradients = here.vjp(cotangent)
            for found, numerical, direction in zip(gaps, slopes, directions, strict=True):
                rise, taken = here.difference(direction, _STEP)
                numerical.append(float(cotangent @ rise) / (2 * _STEP))
                terms = [float(g @ t) for g, t in zip(gradients, taken, strict=True) if t is not None]
                found.append(sum(terms) / (2 * _STEP) - numerical[-1])
        done = count
        means = [(*_mean(found), abs(_mean(numerical)[0])) for found, numerical in zip(gaps, slopes, strict=True)]
        if any(not abs(mean) <= _RULED_OUT * error for mean, error, _ in means):
            return False
        if all(abs(mean) <= _USUAL * error <= _USUAL * _RESOLVED * size for mean, error, size in means):
            return True
    return False


def _mean(values: list[float]) -> tuple[float, float]:
    """The mean and its standard error."""
    mean = sum(values) / len(values)
    variance = sum((each - mean) ** 2 for each in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))
