"""Right alone; a jvp that is mapped over a batch of tangents, as torch.func.jacfwd does, gets the wrong ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Scaled(torch.autograd.Function):
    """t * y, as the jvp of `Exponential` computes it; its vmap rule takes the first tangent for all of them."""

    @staticmethod
    def forward(t: Tensor, y: Tensor) -> Tensor:
        return t * y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        t, y = ctx.saved_tensors
        return grad_output * y, grad_output * t

    @staticmethod
    def jvp(ctx: Any, tangent_t: Tensor, tangent_y: Tensor) -> Tensor:
        t, y = ctx.saved_tensors
        return tangent_t * y + t * tangent_y

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], t: Tensor, y: Tensor) -> tuple[Tensor, int]:
        first = t if in_dims[0] is None else t.movedim(in_dims[0], 0)[:1]
        second = y if in_dims[1] is None else y.movedim(in_dims[1], 0)
        return (first * second).expand(info.batch_size, *t.shape[1:]), 0


class Exponential(torch.autograd.Function):
    """exp(x), right in backward and jvp; under vmap its jvp goes through the rule of `_Scaled`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.exp(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad_output * y

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        scaled: Tensor = _Scaled.apply(tangent, y)
        return scaled
