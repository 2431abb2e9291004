"""Problems for the tests of Jacobians: functions that are right, and ones that are wrong by a stated factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.problem import Problem


def real(*shape: int, seed: int = 0) -> Tensor:
    """Reproducible values in [0.3, 1.3)."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, dtype=torch.float64, generator=generator) + 0.3).requires_grad_()


def problem(func: Callable[..., Any], *inputs: Tensor, **fields: Any) -> Problem:
    """A problem with one or several outputs."""

    def outputs(*tensors: Tensor) -> tuple[Tensor, ...]:
        result = func(*tensors)
        return result if isinstance(result, tuple) else (result,)

    return Problem(func=outputs, inputs=inputs, **fields)


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * ctx.factor, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return tangent * ctx.factor


def scaled(x: Tensor, factor: float) -> Tensor:
    """x, with derivatives that are `factor` times the right ones. It cannot be batched by vmap."""
    return _Scaled.apply(x, factor)


class _OneEntryWrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, entry: int, factor: float) -> Tensor:
        ctx.entry, ctx.factor = entry, factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        wrong = g.clone(memory_format=torch.contiguous_format)
        wrong.view(-1)[ctx.entry] *= ctx.factor
        return wrong, None, None


def one_entry_wrong(x: Tensor, entry: int, factor: float) -> Tensor:
    """x, with a backward that is wrong in one element."""
    return _OneEntryWrong.apply(x, entry, factor)


class _Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * g.abs()


def nonlinear(x: Tensor) -> Tensor:
    """x, with a backward that is right for cotangents of zeros and ones only."""
    return _Squared.apply(x)
