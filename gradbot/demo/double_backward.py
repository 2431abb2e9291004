"""Wrong in the second derivative only: the forward keeps a detached copy, which the second derivative cannot see.

The first derivative is right, training is right, and a gradient penalty is silently wrong.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Cube(torch.autograd.Function):
    """x ** 3, whose backward treats 3 * x ** 2 as a constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.slope = 3 * x.detach() ** 2
        return x**3

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        slope: Tensor = ctx.slope
        return grad_output * slope
