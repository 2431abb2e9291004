"""Right when everything is trained, wrong when one input is frozen: a branch tests the wrong needs_input_grad."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Affine(torch.autograd.Function):
    """x * weight + bias. Where `weight` is frozen, the gradient of `bias` is lost with it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight + bias

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad_x = grad_output * weight
        grad_weight = (grad_output * x).sum(0) if ctx.needs_input_grad[1] else None
        grad_bias = grad_output.sum(0) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, grad_bias
