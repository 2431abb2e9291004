"""Wrong: the backward forgets the inner derivative 1 / cap, as in cap * tanh(x / cap) written from memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SoftCap(torch.autograd.Function):
    """cap * tanh(x / cap). Its backward is `1 / cap` times the true one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cap: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.cap = cap
        return cap * torch.tanh(x / cap)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad_output * (1 - torch.tanh(x / ctx.cap) ** 2) / ctx.cap, None
