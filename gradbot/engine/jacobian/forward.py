"""The analytical Jacobian by forward mode: one column a jvp, one at a time or many at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gradbot.engine.jacobian.point import Array, OutputsChangedError, Point, flatten, split


def push_forward(point: Point, tangent: Array) -> Array:
    """The tangent of all outputs for a tangent of all inputs, (columns,) -> (rows,). No tangent counts as zeros."""
    tangents = flatten(point.problem.jvp([each[0] for each in _tangents(point, tangent[None, :])]))
    if tangents.size != point.value.size:
        raise OutputsChangedError(f"{point.value.size} output elements without tangents, {tangents.size} with them")
    return tangents


def push_forward_move(point: Point, move: Array, *, size: float = 1.0) -> Array:
    """As `push_forward` for a tiny move, by way of a tangent of the mean magnitude `size`: a jvp that is linear only
    for small tangents shows so."""
    made = np.abs(move[move != 0])
    scale = float(made.mean()) / size if made.size else 1.0
    return push_forward(point, move / scale) * scale


def push_forward_stack(point: Point, tangents: Array) -> Array:
    """As `push_forward` for many tangents in one batched jvp, (count, columns) -> (count, rows).

    Raises what batching raises.
    """
    problem, count = point.problem, len(tangents)
    if problem.in_place or problem.grad_mode or problem.seed is not None:
        raise RuntimeError("only a plain function's jvp is batched")
    inputs = tuple(each.detach() for each in problem.inputs)

    def jvp(*parts: Tensor) -> tuple[Tensor, ...]:
        pushed: tuple[Tensor, ...] = torch.func.jvp(problem.func, inputs, parts)[1]
        return pushed

    pushed = torch.func.vmap(jvp)(*_tangents(point, tangents))
    parts = [
        each.detach().reshape(count, -1).to(device="cpu", dtype=torch.float64).numpy(force=True) for each in pushed
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, 1)


def _tangents(point: Point, flat: Array) -> list[Tensor]:
    return [
        torch.from_numpy(np.array(part, order="C"))
        .view(len(flat), *each.shape)
        .to(dtype=each.dtype, device=each.device)
        for part, each in zip(split(flat, point.input_sizes), point.problem.inputs, strict=True)
    ]
