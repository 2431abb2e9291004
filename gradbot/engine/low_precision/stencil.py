"""Five-point differences in low precision, with the perturbations as they were really rounded, and their noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.directional import Direction, Point, flat


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Differences along one direction: five- and three-point, fourth, and the steps as they were taken."""

    direction: Direction
    five: Tensor
    three: Tensor
    fourth: Tensor
    taken: Direction


def sample_along(point: Point, direction: Direction, step: float) -> Sample:
    """Four evaluations, at one and two steps on either side."""
    ahead, behind = point.moved(direction, step), point.moved(direction, -step)
    far_ahead, far_behind = point.moved(direction, 2 * step), point.moved(direction, -2 * step)
    up, down, far_up, far_down = (point.evaluate(each) for each in (ahead, behind, far_ahead, far_behind))
    taken = tuple(
        None if along is None else (8 * (flat(a) - flat(b)) - (flat(c) - flat(d))) / 12
        for along, a, b, c, d in zip(direction, ahead, behind, far_ahead, far_behind, strict=True)
    )
    return Sample(
        direction=direction,
        five=(8 * (up - down) - (far_up - far_down)) / 12,
        three=(up - down) / 2,
        fourth=far_up - 4 * up + 6 * point.values - 4 * down + far_down,
        taken=taken,
    )


def noise_of(fourth: Tensor, magnitude: Tensor, roundoff: float) -> Tensor:
    """Rounding noise per row: its own fourth difference, the pooled relative level, and the rounding of the output."""
    own = fourth.square().mean(0).sqrt() / math.sqrt(70.0)
    usable = magnitude > 0
    pooled = float((own[usable] / magnitude[usable]).median()) if bool(usable.any()) else 0.0
    present = own[own > 0]
    typical = float(present.median()) if present.numel() else 0.0
    level = max(min(pooled, 64 * roundoff), 0.4 * roundoff) * magnitude
    return torch.maximum(own, torch.maximum(torch.full_like(own, 0.3 * typical), level))
