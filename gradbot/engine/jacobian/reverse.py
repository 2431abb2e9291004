"""The analytical Jacobian by backward mode: one row a vjp, one at a time or many at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gradbot.engine.jacobian.point import Array, Point, flatten, split


def pull_back(point: Point, cotangent: Array) -> Array:
    """The gradient of all inputs for a cotangent of all outputs, (rows,) -> (columns,). None counts as zeros.

    Outputs that hang on no graph take no part: their rows are zero.
    """
    outputs, cotangents = _cotangents(point, cotangent, ())
    inputs = point.problem.inputs
    if not outputs:
        return np.zeros_like(point.position)
    gradients = torch.autograd.grad(outputs, inputs, cotangents, retain_graph=True, allow_unused=True)
    return flatten([_dense(each, like) for each, like in zip(gradients, inputs, strict=True)])


def pull_back_stack(point: Point, cotangents: Array) -> Array:
    """As `pull_back` for many cotangents in one batched vjp, (count, rows) -> (count, columns).

    Raises what batching raises.
    """
    count, inputs = len(cotangents), point.problem.inputs
    outputs, stacks = _cotangents(point, cotangents, (count,))
    if not outputs:
        return np.zeros((count, point.position.size))
    gradients = torch.autograd.grad(
        outputs, inputs, stacks, retain_graph=True, allow_unused=True, is_grads_batched=True
    )
    parts = [
        np.zeros((count, like.numel()))
        if each is None
        else each.detach().to_dense().reshape(count, -1).to(device="cpu", dtype=torch.float64).numpy(force=True)
        for each, like in zip(gradients, inputs, strict=True)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, 1)


def _cotangents(point: Point, flat: Array, leading: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs that hang on a graph, and their parts of flat cotangents, in memory that a backward may write to."""
    outputs, cotangents = [], []
    for output, part in zip(point.linearization.outputs, split(flat, point.output_sizes), strict=True):
        if output.requires_grad:
            stack = torch.from_numpy(np.array(part, order="C")).view((*leading, *output.shape))
            outputs.append(output)
            plain = output.dtype == torch.float64 and output.device.type == "cpu"
            cotangents.append(stack if plain else stack.to(dtype=output.dtype, device=output.device))
    return outputs, cotangents


def _dense(gradient: Tensor | None, like: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros_like(like).detach()
    gradient = gradient.detach()
    return gradient if gradient.layout == torch.strided else gradient.to_dense()
