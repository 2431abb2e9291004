"""Put a fault into any differentiable function: into its backward, its jvp, or the backward of its backward.

The fault sits in an identity in front of one input, so that the function's values stay what they are and only the
derivative named is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from faults.kinds import Fault, Wrong
from torch import Tensor

ORDERS = ("backward", "jvp", "double backward")


class _WrongBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, wrong: Wrong) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.wrong = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return ctx.wrong(g), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return tangent.view_as(tangent)


class _WrongJvp(torch.autograd.Function):
    generate_vmap_rule = False  # a generated rule does not support jvp

    @staticmethod
    def forward(x: Tensor, wrong: Wrong) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.wrong = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g.clone(), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return ctx.wrong(tangent)


class _WrongDoubleBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, wrong: Wrong) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.wrong = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return _WrongBackward.apply(g, ctx.wrong), None


_FUNCTIONS = {"backward": _WrongBackward, "jvp": _WrongJvp, "double backward": _WrongDoubleBackward}


def inject(func: Callable[..., Any], fault: Fault, *, order: str = "backward", argument: int = 0) -> Callable[..., Any]:
    """`func` with the derivative `order` by one positional argument wrong, one of `ORDERS`."""
    wrong = fault.make()
    identity = _FUNCTIONS[order]

    def faulty(*args: Any, **kwargs: Any) -> Any:
        changed = list(args)
        changed[argument] = identity.apply(changed[argument], wrong)
        return func(*changed, **kwargs)

    return faulty
