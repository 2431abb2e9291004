"""Functions that draw random numbers: what a gradient that is wrong under one draw may be nevertheless.

An estimator (a trace by random probes, say) has a gradient that estimates as well: it is the derivative of the forward
on average, and under no single draw. A decomposition that starts from a random vector gives one of many factors, each
as good as any other: its gradient is right for what all of them share, and no step of the factor itself shows that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.directional import REFUSALS, Point, signed_uniform
from gradbot.engine.prepare import Prepared, under_seed
from gradbot.engine.projections import span, without_sign

_DRAWS = (16, 32, 64, 128, 256)
_STEP = 2.0**-14
_DIRECTIONS = 2
_RULED_OUT = 6.0
"""Standard errors: a mean difference beyond this is no chance."""
_USUAL = 3.0
_RESOLVED = 0.15
"""Of the derivative: the standard error at which a mean difference would have shown a wrong factor."""
_SAME = 1e-4
"""Of the size: what counts as the same under every draw."""
_SECONDS = 60.0
"""What more draws may take in all; the first few are always made."""
_LARGEST = 1 << 20
"""Elements of a product that is looked at."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """An invariant of the outputs that no draw changes. `tight`: draws change all that it leaves out."""

    invariant: Callable[..., Any]
    tight: bool


def shared_by_draws(prepared: Prepared) -> tuple[Shared, ...]:
    """What is the same under every draw where some outputs are not, the tightest first; nothing where there is no such.

    Columns that draws change by their signs count each for itself, and then all by what they span together, since a
    factor may be meant for its product alone; any others by what they span.
    """
    try:
        draws = [prepared.subject.changed(seed=seed).call(prepared.subject.inputs) for seed in (1, 2, 3)]
    except REFUSALS:
        return ()
    found: dict[int, tuple[Callable[[Tensor], Tensor], ...]] = {}
    for position in prepared.subject.selected:
        values = [each[position].detach() for each in draws]
        if any(each.shape != values[0].shape for each in values):
            return ()
        if not _same(values):
            found[position] = tuple(each for each in (without_sign, span) if _is_shared(each, values))
    if not found or not all(found.values()):
        return ()
    tight = {position: invariants[0] for position, invariants in found.items()}
    loose = {position: invariants[-1] for position, invariants in found.items()}
    shared = Shared(invariant=_applied(tight), tight=True)
    return (shared,) if tight == loose else (shared, Shared(invariant=_applied(loose), tight=False))


def _applied(chosen: Mapping[int, Callable[[Tensor], Tensor]]) -> Callable[..., Any]:
    return lambda *outputs: tuple(
        chosen[position](each) if position in chosen else each for position, each in enumerate(outputs)
    )


def _is_shared(invariant: Callable[[Tensor], Tensor], values: list[Tensor]) -> bool:
    if values[0].dim() < 2 or values[0].numel() * values[0].shape[-2] > _LARGEST:
        return False
    return _same([invariant(each) for each in values])


def _same(values: list[Tensor]) -> bool:
    return all(_size(each - values[0]) <= _SAME * _size(values[0]) for each in values[1:])


def _size(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))
