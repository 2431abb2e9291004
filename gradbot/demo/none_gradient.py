"""Wrong: `None` for an input that the output depends on. Training goes on; the parameter never moves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Temperature(torch.autograd.Function):
    """x / temperature. No gradient is returned for `temperature`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, temperature: Tensor) -> Tensor:
        ctx.save_for_backward(temperature)
        return x / temperature

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (temperature,) = ctx.saved_tensors
        return grad_output / temperature, None
