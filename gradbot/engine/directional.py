"""Directional derivatives of a problem at a point: numerical ones along directions, analytical ones along cotangents.

All vectors here are flat, float64 and on the CPU: outputs one after another, inputs apart. Perturbed inputs are used
as they were really rounded, so that a step is never what was asked for but what was taken.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.problem import Linearization, Problem

DOUBLE = torch.float64
UNIT_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
Direction = tuple["Tensor | None", ...]
"""One flat vector an input; None leaves that input where it is."""


def signed_uniform(count: int, generator: torch.Generator) -> Tensor:
    """`count` draws of sign * U[0.5, 1.5]: no component is near zero and no two have the same magnitude."""
    draws = torch.rand(count, generator=generator, dtype=DOUBLE).mul_(2).sub_(1)
    return draws + torch.copysign(torch.full((), 0.5, dtype=DOUBLE), draws)


def flat(tensor: Tensor) -> Tensor:
    """A detached flat float64 copy on the CPU."""
    dense = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    return dense.reshape(-1).to("cpu", DOUBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A problem at its inputs. `scales` are the natural step lengths, max(|x|, rms(x)) elementwise."""

    problem: Problem
    linearization: Linearization
    values: Tensor
    inputs: tuple[Tensor, ...]
    scales: tuple[Tensor, ...]
    sizes: tuple[int, ...]  # of the outputs
    unit_roundoff: float

    @classmethod
    def of(cls, problem: Problem) -> Point:
        """Evaluates the function once without and once with a graph."""
        linearization = problem.linearize()
        values = problem.evaluate(problem.inputs)
        dtypes = [each.dtype for each in (*problem.inputs, *linearization.outputs)]
        inputs = tuple(flat(each) for each in problem.inputs)
        return cls(
            problem=problem,
            linearization=linearization,
            values=_joined([flat(each) for each in values]),
            inputs=inputs,
            scales=tuple(natural_scale(each) for each in inputs),
            sizes=tuple(each.numel() for each in linearization.outputs),
            unit_roundoff=max(UNIT_ROUNDOFF.get(each, 2.0**-53) for each in dtypes),
        )

    def rows(self, output: int) -> slice:
        """Where an output lies in a flat vector of all outputs."""
        start = sum(self.sizes[:output])
        return slice(start, start + self.sizes[output])

    def direction(
        self, generator: torch.Generator, *, only: int | None = None, mask: Tensor | None = None
    ) -> Direction:
        """A random direction over all inputs, or over input `only`, there times `mask`."""
        made: list[Tensor | None] = []
        for index, scale in enumerate(self.scales):
            if only is not None and index != only:
                made.append(None)
                continue
            drawn = signed_uniform(scale.numel(), generator) * scale
            made.append(drawn if mask is None else drawn * mask)
        return tuple(made)

    def coordinate(self, index: int, column: int) -> Direction:
        """The direction of one element of input `index`, of the element's natural length."""
        unit = torch.zeros_like(self.inputs[index])
        unit[column] = self.scales[index][column]
        return tuple(unit if each == index else None for each in range(len(self.inputs)))

    def moved(self, direction: Direction, step: float) -> tuple[Tensor, ...]:
        """The inputs, moved and rounded to their own dtypes, in their own shapes."""
        return tuple(
            own if along is None else (at + step * along).to(own.dtype).view(own.shape).to(own.device)
            for own, at, along in zip(self.problem.inputs, self.inputs, direction, strict=True)
        )

    def evaluate(self, inputs: Sequence[Tensor]) -> Tensor:
        """The outputs at `inputs`, one flat vector."""
        return _joined([flat(each) for each in self.problem.evaluate(inputs)])

    def difference(self, direction: Direction, step: float) -> tuple[Tensor, Direction]:
        """f(x + step u) - f(x - step u), and the difference of the two inputs as it really was."""
        ahead, behind = self.moved(direction, step), self.moved(direction, -step)
        taken = tuple(
            None if along is None else flat(above) - flat(below)
            for above, below, along in zip(ahead, behind, direction, strict=True)
        )
        return self.evaluate(ahead) - self.evaluate(behind), taken

    def derivative(self, direction: Direction, step: float) -> Tensor:
        """The central difference quotient along a coordinate direction, per unit of the input."""
        change, taken = self.difference(direction, step)
        length = sum(float(each.abs().sum()) for each in taken if each is not None)
        return change / length if length else torch.full_like(change, math.nan)

    def slopes(self, direction: Direction, step: float) -> tuple[Tensor, Tensor]:
        """One-sided difference quotients ahead and behind, per unit of `direction`."""
        ahead = (self.evaluate(self.moved(direction, step)) - self.values) / step
        behind = (self.values - self.evaluate(self.moved(direction, -step))) / step
        return ahead, behind

    def vjp(self, cotangent: Tensor) -> tuple[Tensor, ...]:
        """The analytical gradients for one flat cotangent; zeros where the graph has no path."""
        parts = [
            part.view(output.shape).to(output.device, output.dtype)
            for part, output in zip(torch.split(cotangent, list(self.sizes)), self.linearization.outputs, strict=True)
        ]
        grads = self.linearization.vjp(parts)
        return tuple(
            torch.zeros_like(at) if grad is None else flat(grad) for grad, at in zip(grads, self.inputs, strict=True)
        )

    def row(self, row: int) -> tuple[Tensor, ...]:
        """One row of the analytical Jacobian: the vjp of a unit cotangent."""
        unit = torch.zeros_like(self.values)
        unit[row] = 1.0
        return self.vjp(unit)

    def noise(self, generator: torch.Generator, step: float = 2.0**-17) -> Tensor:
        """The rounding noise of every output, from a fourth difference pooled over outputs.

        One level of Moré and Wild's ECNoise (SIAM J. Sci. Comput. 33, 2011): the fourth difference of a smooth
        function over a small step is noise of variance 70 sigma^2.
        """
        along = self.direction(generator)
        steps = [self.evaluate(self.moved(along, factor * step)) for factor in (-2.0, -1.0, 1.0, 2.0)]
        fourth = (steps[0] - 4 * steps[1] + 6 * self.values - 4 * steps[2] + steps[3]).abs() / math.sqrt(70.0)
        magnitude = self.values.abs()
        usable = torch.isfinite(fourth) & (magnitude > 0)
        pooled = float((fourth[usable] / magnitude[usable]).median()) * 1.5 if bool(usable.any()) else 0.0
        # Where the pooled figure is large it is curvature or a kink, not rounding: bounded by what rounding can be.
        relative = max(0.6 * self.unit_roundoff, min(pooled, 4096 * self.unit_roundoff))
        typical = float(magnitude[torch.isfinite(magnitude)].median()) if bool(torch.isfinite(magnitude).any()) else 0.0
        return relative * magnitude.nan_to_num(0.0, 0.0, 0.0).clamp_min(typical)


REFUSALS = (ArithmeticError, AssertionError, RuntimeError, ValueError)
"""What functions raise where they are not defined: looking further away than the user did has to reckon with it."""


def natural_scale(values: Tensor) -> Tensor:
    """max(|x|, rms(x)) elementwise; 1 where all are zero or not finite."""
    magnitude = values.abs()
    rms = float(magnitude.square().mean().sqrt()) if magnitude.numel() else 1.0
    if not (rms > 0 and math.isfinite(rms)):
        rms = 1.0
    return magnitude.clamp_min(rms)


@contextlib.contextmanager
def problem_at(problem: Problem, inputs: Sequence[Tensor]) -> Iterator[Problem]:
    """The same problem at other inputs, for as long as the context lasts.

    Functions that capture their inputs are moved in the inputs' own memory, which is restored on leaving.
    """
    if not problem.in_place:
        leaves = tuple(each.detach().clone().requires_grad_() for each in inputs)
        yield dataclasses.replace(problem, inputs=leaves)
        return
    kept = [each.detach().clone() for each in problem.inputs]
    try:
        with torch.no_grad():
            for own, value in zip(problem.inputs, inputs, strict=True):
                own.data.copy_(value)
        yield problem
    finally:
        with torch.no_grad():
            for own, value in zip(problem.inputs, kept, strict=True):
                own.data.copy_(value)


def _joined(parts: list[Tensor]) -> Tensor:
    if not parts:
        return torch.zeros(0, dtype=DOUBLE)
    return parts[0] if len(parts) == 1 else torch.cat(parts)
