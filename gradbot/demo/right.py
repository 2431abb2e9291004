"""Right in every derivative: what a clean bill looks like."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Swish(torch.autograd.Function):
    """x * sigmoid(x), with a backward, a jvp and a generated vmap rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return grad_output * (gate + x * gate * (1 - gate))

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return tangent * (gate + x * gate * (1 - gate))
