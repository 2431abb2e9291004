"""Functions with a backward of choice, for tests of what finds it out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gradbot.engine.problem import Problem

DOUBLE = torch.float64


def custom(forward: Callable[..., Tensor], backward: Callable[..., object]) -> Callable[..., Tensor]:
    """A Function whose backward gets grad_output and the inputs."""

    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            return backward(grad, *ctx.saved_tensors)

    return Custom.apply


def bent(forward: Callable[[Tensor], Tensor], bend: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function whose gradient is bent on its way to the input."""
    identity = custom(lambda x: x.view_as(x), lambda grad, x: bend(grad))
    return lambda x: forward(identity(x))


def problem(func: Callable[..., object], *inputs: Tensor) -> Problem:
    """The problem of a function with one or several outputs."""

    def outputs(*tensors: Tensor) -> tuple[Tensor, ...]:
        result = func(*tensors)
        return result if isinstance(result, tuple) else (result,)

    return Problem(func=outputs, inputs=tuple(each.detach().clone().requires_grad_() for each in inputs))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
