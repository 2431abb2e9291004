"""Right without vmap, wrong under it: the vmap rule of the derivative swaps its two inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Subtract(torch.autograd.Function):
    """a - b, as the backward of `Distance` computes it; its vmap rule computes b - a."""

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        return a - b

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output, -grad_output

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], a: Tensor, b: Tensor) -> tuple[Tensor, int]:
        first = a if in_dims[0] is None else a.movedim(in_dims[0], 0)
        second = b if in_dims[1] is None else b.movedim(in_dims[1], 0)
        return _Subtract.apply(second, first), 0


class Distance(torch.autograd.Function):
    """(x - y) ** 2 / 2, right; under vmap its backward goes through the swapped rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return (x - y) ** 2 / 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        difference = _Subtract.apply(x * grad_output, y * grad_output)
        return difference, -difference
