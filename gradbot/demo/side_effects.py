"""Right values, broken contract: the backward uses grad_output as scratch memory, and others lose their gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Negate(torch.autograd.Function):
    """-x, whose backward zeroes grad_output when it is done with it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return -x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        result = -grad_output
        with torch.no_grad():
            grad_output.zero_()
        return result
