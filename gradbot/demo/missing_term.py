"""Wrong: the softmax's backward lacks its second term, the sum over the row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class RowSoftmax(torch.autograd.Function):
    """softmax over the last dimension. The backward keeps `y * g` and drops `y * sum(y * g)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad_output * y
