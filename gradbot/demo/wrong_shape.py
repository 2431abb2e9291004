"""Raises in the backward: the gradient comes out transposed, and only square inputs hide it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Doubled(torch.autograd.Function):
    """2 * x, whose backward returns the transpose of the gradient: another shape than the input's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return 2 * grad_output.T
