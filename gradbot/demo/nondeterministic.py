"""Wrong now and then: the backward adds up in another order every time, as atomic additions on a GPU do."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

_ORDER = random.Random()


class ScatterMix(torch.autograd.Function):
    """x.sum(0) of pairwise products, whose backward sums its rows in random order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sum(0).square()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        order = list(range(len(x)))
        _ORDER.shuffle(order)
        total = torch.zeros_like(grad_output)
        for row in order:
            total = total + x[row] * 1.1
        return (2 * grad_output * total / 1.1).expand_as(x)
