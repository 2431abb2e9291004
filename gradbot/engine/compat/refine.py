"""A second look at a column of a Jacobian: derivatives over a ladder of steps, each with an error bar.

Per step h the function is evaluated at 0, +-h and +-2h. With d1 = f(h) - f(-h), d2 = f(2h) - f(-2h):

    slope       (8 d1 - d2) / 12 h                 (five-point stencil, error h^4 f'''''/30)
    truncation  |slope - d1 / 2h|
    noise       |f(2h) - 4 f(h) + 6 f(0) - 4 f(-h) + f(-2h)| / sqrt(70), the largest over this and all smaller steps

after the difference tables of Hamming and of Moré and Wild, "Estimating computational noise" (2011). A kink within
reach of a step shows in the fourth difference like noise, so that only steps that stay clear of it are believed.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.compat.layouts import Coordinates
from gradbot.engine.compat.numerical import Column, difference, evaluate, rounding_of
from gradbot.engine.compat.outputs import Outputs
from gradbot.engine.compat.subject import Subject

RATIO = 8.0
RESOLUTION = 0.01
"""A step is believed where its error bar is below this share of its slope, or below what the caller allows."""

# below this share of the entry's size, values that do not change at all may be rounded on the way
FLAT_BELOW = 2.0**-25


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Slopes and error bars of all rows by one column: (steps, rows), from the largest step to the smallest."""

    steps: Tensor
    slopes: Tensor
    bars: Tensor
    flat: Tensor

    def believed(self, allowed: Tensor) -> Tensor:
        """Which estimates are resolved: an error bar that is small, and a neighbour that says the same."""
        small = self.bars <= torch.maximum(allowed, RESOLUTION * self.slopes.abs())
        small &= self.slopes.isfinite()
        slack = self.bars[1:] + self.bars[:-1] + allowed + RESOLUTION * self.slopes[1:].abs()
        alike = ((self.slopes[1:] - self.slopes[:-1]).abs() <= slack) & small[1:] & small[:-1]
        none = torch.zeros_like(small[:1])
        return (torch.cat([alike, none]) | torch.cat([none, alike])) & ~self.flat

    def best(self, allowed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Per row: the believed slope with the smallest error bar, that bar, and whether any slope is believed."""
        believed = self.believed(allowed)
        best = torch.where(believed, self.bars, math.inf).nan_to_num(math.inf, math.inf).argmin(0, keepdim=True)
        return self.slopes.gather(0, best)[0], self.bars.gather(0, best)[0], believed.any(0)


def ladder(subject: Subject, base: Outputs, coordinates: Coordinates, column: Column) -> Ladder:
    """Evaluates the function over a ladder of steps along `column`. What the function raises counts as not a number."""
    size = abs(coordinates.entries[coordinates.index(column.which)].item())
    steps = _steps(size if math.isfinite(size) else 1.0, rounding_of(coordinates.entries))
    center = base.values
    rounding = rounding_of(base.all[base.floating[0]]) if base.floating else 0.0
    slopes, truncations, noises, flats = [], [], [], []
    for step in steps:
        inner = [_at(subject, base, coordinates, column, sign * step) for sign in (1, -1)]
        outer = [_at(subject, base, coordinates, column, 2 * sign * step) for sign in (1, -1)]
        near, far = difference(*inner), difference(*outer)
        slope = (8 * near - far) / (12 * step)
        fourth = (outer[0] - center) + (outer[1] - center) - 4 * ((inner[0] - center) + (inner[1] - center))
        unchanged = (inner[0] == inner[1]) & (outer[0] == outer[1]) & (inner[0] == center) & (outer[0] == center)
        slopes.append(slope)
        truncations.append((slope - near / (2 * step)).abs())
        noises.append(torch.where(unchanged, 0.0, fourth.abs() / math.sqrt(70)).nan_to_num(math.inf, math.inf))
        flats.append(unchanged & (step < FLAT_BELOW * size))
    widths = torch.tensor(steps, dtype=torch.float64, device="cpu").unsqueeze(1)
    # noise does not depend on the step: the largest seen at this step or a smaller one counts
    noise = torch.stack(noises).flip(0).cummax(0).values.flip(0)
    bars = 4 * noise / widths + torch.stack(truncations) + rounding * center.abs().nan_to_num(0.0, 0.0) / widths
    return Ladder(steps=widths.squeeze(1), slopes=torch.stack(slopes), bars=bars, flat=torch.stack(flats))


def _steps(size: float, rounding: float) -> list[float]:
    """Powers of two on the scale of 1 and on that of the entry, from large to small."""
    finest = max(rounding * 2.0**9, 2.0**-40)
    steps: list[float] = []
    for scale in sorted({max(size, 1.0), size or 1.0}, reverse=True):
        step = 2.0 ** (math.ceil(math.log2(scale)) - 1)
        while step > scale * finest:
            if not steps or step < steps[-1]:
                steps.append(step)
            step /= RATIO
    return steps


def _at(subject: Subject, base: Outputs, coordinates: Coordinates, column: Column, step: float) -> Tensor:
    # a step may leave the domain, in whichever way the function says so
    with contextlib.suppress(Exception), coordinates.moved(column.which, step * column.part):
        outputs = evaluate(subject, coordinates)
        if outputs.signature == base.signature:
            return outputs.values
    return torch.full_like(base.values, math.nan)
