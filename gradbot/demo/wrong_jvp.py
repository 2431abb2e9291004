"""Right backward, wrong jvp: a factor that only forward-mode AD sees."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Sine(torch.autograd.Function):
    """sin(x), whose jvp lacks nothing but the sign of cos(x)."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad_output * torch.cos(x)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return -tangent * torch.cos(x)
