"""Right at the scale where anyone looks, wrong beyond: the backward clips grad_output, so it is no derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Clipped(torch.autograd.Function):
    """2 * x, whose backward clamps grad_output to [-1, 1]: gradient clipping in the wrong place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return 2 * grad_output.clamp(-1, 1)
