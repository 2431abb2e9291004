"""Right backward, right jvp, right double backward; the jvp of the backward is wrong.

Hessian-vector products by forward over reverse, the fast way, silently lack a factor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Slope(torch.autograd.Function):
    """g * 3 * x ** 2, the backward of `Cubed`, with a backward that is right and a jvp that is half of it."""

    @staticmethod
    def forward(g: Tensor, x: Tensor) -> Tensor:
        return g * 3 * x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        g, x = ctx.saved_tensors
        return grad_output * 3 * x**2, grad_output * g * 6 * x

    @staticmethod
    def jvp(ctx: Any, tangent_g: Tensor, tangent_x: Tensor) -> Tensor:
        g, x = ctx.saved_tensors
        return tangent_g * 3 * x**2 + tangent_x * g * 3 * x


class Cubed(torch.autograd.Function):
    """x ** 3, whose backward goes through `_Slope`."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        slope: Tensor = _Slope.apply(grad_output, x)
        return slope

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return tangent * 3 * x**2
