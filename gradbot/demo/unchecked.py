"""Has no inputs in `cases.py`: gradbot lists it as unchecked and never counts it as passed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class TopGate(torch.autograd.Function):
    """Keeps the `k` largest entries of every row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
        mask = torch.zeros_like(x).scatter(-1, x.topk(k, dim=-1).indices, 1.0)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grad_output * mask, None
