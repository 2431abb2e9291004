"""Right on real values, wrong on complex ones: a conjugation is missing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ComplexSquare(torch.autograd.Function):
    """z ** 2. The gradient is g * conj(2 z); the backward returns g * 2 z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        return z * z

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return grad_output * 2 * z
