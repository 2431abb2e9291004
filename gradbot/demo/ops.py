"""Ops registered with torch.library: a right one, one with a wrong gradient, and one with a wrong fake kernel.

`torch.library.opcheck` finds nothing wrong with `cubed`: it does not look at the values of gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("gradbot_demo::squared", mutates_args=())
def squared(x: Tensor) -> Tensor:
    """x ** 2, right."""
    return x * x


@squared.register_fake
def _squared_fake(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _save_input(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _squared_backward(ctx: Any, grad_output: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return 2 * x * grad_output


squared.register_autograd(_squared_backward, setup_context=_save_input)


@torch.library.custom_op("gradbot_demo::cubed", mutates_args=())
def cubed(x: Tensor) -> Tensor:
    """x ** 3, whose backward says 2 * x ** 2."""
    return x * x * x


@cubed.register_fake
def _cubed_fake(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _cubed_backward(ctx: Any, grad_output: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return 2 * x * x * grad_output


cubed.register_autograd(_cubed_backward, setup_context=_save_input)


@torch.library.custom_op("gradbot_demo::row_sums", mutates_args=())
def row_sums(x: Tensor) -> Tensor:
    """x.sum(1), right in its values; its fake kernel forgets that a dimension goes away."""
    return x.sum(1)


@row_sums.register_fake
def _row_sums_fake(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _save_width(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.width = inputs[0].shape[1]


def _row_sums_backward(ctx: Any, grad_output: Tensor) -> Tensor:
    return grad_output[:, None].expand(-1, ctx.width)


row_sums.register_autograd(_row_sums_backward, setup_context=_save_width)
