"""Gradients that are not the derivative on purpose: straight-through, surrogate, reversed and scaled ones.

A forward that is flat almost everywhere and yet varies has derivative zero, so that any other backward is either meant
or pointless. Such a function is recognised and its declaration proposed; it is not called wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.comparison import Comparison
from gradbot.engine.directional import REFUSALS, Point, problem_at, signed_uniform
from gradbot.engine.problem import Problem
from gradbot.model import Diagnosis

FLAT_STEPS = (2.0**-20, 2.0**-23)
"""Two steps: nothing changes over either, or only as rounding does. Never below `ROUNDINGS` roundings."""
ROUNDINGS = 256
COARSEST = 1e-6
"""Above this unit roundoff a step that rounding allows is too long to tell flat from not."""
AWAY = 2.0**-4
"""Other places at which a flat forward is flat too, relative to the inputs' scale."""
FAR = 2.0
"""How far a forward must be followed to see that it varies at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """What an intentional gradient looks like; `expect` is its declaration, one of `model.EXPECTATIONS`."""

    output: int
    input: int
    expect: str


def recognise(problem: Problem, comparison: Comparison, seed: int = 0) -> Surrogate | None:
    """The first wrong pair whose forward is flat almost everywhere while its backward is not; None where none is."""
    generator = torch.Generator().manual_seed(seed)
    point = Point.of(problem)
    if point.unit_roundoff > COARSEST:
        return None
    for output, index in comparison.wrong_pairs:
        cotangent = torch.zeros_like(point.values)
        cotangent[point.rows(output)] = signed_uniform(point.sizes[output], generator)
        gradient = point.vjp(cotangent)[index]
        if not bool(gradient.any()):
            continue
        try:
            flat = _flat(point, output, index, generator) and _varies(point, output, index, generator)
        except REFUSALS:
            continue  # a function with a domain that is left so soon is no rounding and no spike
        if flat:
            through = gradient.numel() == point.sizes[output] and _same(gradient, cotangent[point.rows(output)])
            return Surrogate(output=output, input=index, expect="straight_through" if through else "surrogate")
    return None


def declaration(target: str, expect: str, reason: str = "...") -> str:
    """The lines of configuration that declare an intentional gradient."""
    return f'[tool.gradbot.targets."{target}"]\nexpect = "{expect}"\nreason = "{reason}"'


def expectation_of(diagnosis: Diagnosis | None) -> str:
    """The declaration that a diagnosed constant factor would need if it were meant: "reversal", "scaled", or none."""
    if diagnosis is None:
        return ""
    return {"sign": "reversal", "constant_factor": "scaled"}.get(diagnosis.pattern, "")


def _flat(point: Point, output: int, index: int, generator: torch.Generator) -> bool:
    """Whether at most of a few places around no small step changes the output."""
    flat_places = 0
    for _ in range(3):
        moved = point.moved(point.direction(generator, only=index), AWAY)
        with problem_at(point.problem, moved) as problem:
            flat_places += all(
                _still(Point.of(problem), output, index, max(step, ROUNDINGS * point.unit_roundoff), generator)
                for step in FLAT_STEPS
            )
    return flat_places >= 2


def _still(beside: Point, output: int, index: int, step: float, generator: torch.Generator) -> bool:
    own = beside.rows(output)
    change, _ = beside.difference(beside.direction(generator, only=index), step)
    # A value assembled from rounded parts, as x + (round(x) - x), may move by its own rounding and no more.
    scale = max(float(each.abs().max()) for each in (beside.values[own], beside.inputs[index]) if each.numel())
    rounding = 8 * beside.unit_roundoff * (beside.values[own].abs() + scale)
    # Elements that a step carries over a jump do not count against it, while they are few.
    return float((change[own].abs() > rounding).double().mean()) <= 0.01


def _varies(point: Point, output: int, index: int, generator: torch.Generator) -> bool:
    own = point.rows(output)
    for _ in range(4):
        far = point.evaluate(point.moved(point.direction(generator, only=index), FAR))[own]
        if bool(((far - point.values[own]).abs() > 1e-6 * (1 + point.values[own].abs())).any()):
            return True
    return False


def _same(left: Tensor, right: Tensor) -> bool:
    return bool(torch.isclose(left, right, rtol=1e-6, atol=0.0).all())
