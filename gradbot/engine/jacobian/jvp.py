"""The analytical Jacobian by forward mode, one column a jvp."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradbot.engine.jacobian.point import OutputsChanged, Point, flatten


def push_forward(point: Point, tangent: Tensor) -> Tensor:
    """The flat tangent of all outputs for a flat tangent of all inputs. An output without a tangent has zeros."""
    parts = [
        part.to(dtype=each.dtype, device=each.device).view(each.shape)
        for part, each in zip(tangent.split(point.input_sizes), point.problem.inputs, strict=True)
    ]
    tangents = flatten(point.problem.jvp(parts))
    if tangents.numel() != point.value.numel():
        raise OutputsChanged(f"{point.value.numel()} output elements without tangents, {tangents.numel()} with them")
    return tangents


def columns(point: Point, which: Sequence[int]) -> Tensor:
    """The columns `which` of the Jacobian, (rows, columns)."""
    jacobian = torch.zeros(point.value.numel(), len(which), dtype=torch.float64)
    for position, column in enumerate(which):
        tangent = torch.zeros_like(point.position)
        tangent[column] = 1.0
        jacobian[:, position] = push_forward(point, tangent)
    return jacobian
