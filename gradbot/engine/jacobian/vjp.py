"""The analytical Jacobian by backward mode, one row a vjp."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradbot.engine.jacobian.point import Point, flatten


def pull_back(point: Point, cotangent: Tensor) -> Tensor:
    """The flat gradient of all inputs for a flat cotangent of all outputs. None counts as zeros.

    Outputs that hang on no graph take no part: their rows are zero.
    """
    outputs, cotangents = [], []
    for output, part in zip(point.linearization.outputs, cotangent.split(point.output_sizes), strict=True):
        if output.requires_grad:
            outputs.append(output)
            cotangents.append(part.to(dtype=output.dtype, device=output.device).view(output.shape))
    inputs = point.problem.inputs
    if not outputs:
        return torch.zeros_like(point.position)
    gradients = torch.autograd.grad(outputs, inputs, cotangents, retain_graph=True, allow_unused=True)
    return flatten([dense(each, like) for each, like in zip(gradients, inputs, strict=True)])


def dense(gradient: Tensor | None, like: Tensor) -> Tensor:
    """A gradient as a detached strided tensor of the input's shape."""
    if gradient is None:
        return torch.zeros_like(like)
    gradient = gradient.detach()
    return gradient if gradient.layout == torch.strided else gradient.to_dense()


def rows(point: Point, which: Sequence[int]) -> Tensor:
    """The rows `which` of the Jacobian, (rows, columns)."""
    jacobian = torch.zeros(len(which), point.position.numel(), dtype=torch.float64)
    for position, row in enumerate(which):
        cotangent = torch.zeros_like(point.value)
        cotangent[row] = 1.0
        jacobian[position] = pull_back(point, cotangent)
    return jacobian
