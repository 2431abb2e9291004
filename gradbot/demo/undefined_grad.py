"""Raises when only one of its outputs is used: the backward asked not to get zeros, and does not expect None."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SinCos(torch.autograd.Function):
    """(sin(x), cos(x)). Its backward multiplies by both grad_outputs, one of which may be None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return torch.sin(x), torch.cos(x)

    @staticmethod
    def backward(ctx: Any, grad_sin: Tensor, grad_cos: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad_sin * torch.cos(x) - grad_cos * torch.sin(x)
