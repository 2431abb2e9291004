"""Forwards that move in steps: computed by iteration to some tolerance, or in a coarser arithmetic inside.

Such a function has no derivative at the scale that differences are taken at, and the rule differentiates what it
approximates. Over a wide interval the two agree. What tells such a function from any other is the fundamental theorem
of calculus: a continuous function, kinks or not, rises over an interval by the mean of its slopes inside; one that
moves in steps does not, since its slopes between the steps are zero, nor does one with noise, whose slopes are
anything.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradbot.engine.comparison import Comparison
from gradbot.engine.directional import REFUSALS, Direction, Point, signed_uniform
from gradbot.engine.problem import Problem

_WIDE = 2.0**-8
_NARROW = 2.0**-36
_PLACES = 24
_DIRECTIONS = 3
_UNEXPLAINED = 0.5
"""Of the rise over the interval: what sampled slopes of a continuous function miss by chance is less."""
_AGREES = 0.03


def explains(problem: Problem, comparison: Comparison, seed: int = 0) -> bool:
    """Whether every wrong pair is one of a forward that moves in steps, with a gradient that is right over them."""
    generator = torch.Generator().manual_seed(seed)
    point = Point.of(problem)
    try:
        return all(_explains(point, output, index, generator) for output, index in comparison.wrong_pairs)
    except REFUSALS:
        return False  # it refuses an interval as wide: nothing is known of it


def _explains(point: Point, output: int, index: int, generator: torch.Generator) -> bool:
    rows = point.rows(output)
    for number in range(_DIRECTIONS):
        direction = point.direction(generator, only=index)
        rise = (_at(point, direction, _WIDE) - _at(point, direction, -_WIDE))[rows] / (2 * _WIDE)
        if number == 0 and not _moves_in_steps(point, direction, rows, rise, generator):
            return False
        cotangent = torch.zeros_like(point.values)
        cotangent[rows] = signed_uniform(point.sizes[output], generator)
        along = direction[index]
        assert along is not None
        terms = point.vjp(cotangent)[index] * along
        signal = max(float(terms.norm()), float((cotangent[rows] * rise).norm()))
        if not abs(float(terms.sum()) - float(cotangent[rows] @ rise)) <= _AGREES * signal:
            return False
    return True


def _moves_in_steps(point: Point, direction: Direction, rows: slice, rise: Tensor, generator: torch.Generator) -> bool:
    size = float(rise.norm())
    rounding = 64 * point.unit_roundoff * float(point.values[rows].norm()) / _NARROW
    if not size > 0 or rounding > 0.1 * size:
        return False
    total = torch.zeros_like(rise)
    for place in (torch.rand(_PLACES, generator=generator) * 2 - 1).tolist():
        ahead = _at(point, direction, _WIDE * place + _NARROW)
        total += (ahead - _at(point, direction, _WIDE * place - _NARROW))[rows] / (2 * _NARROW)
    return not float((total / _PLACES - rise).norm()) <= _UNEXPLAINED * size


def _at(point: Point, direction: Direction, step: float) -> Tensor:
    return point.evaluate(point.moved(direction, step))
