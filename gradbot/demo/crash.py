"""Takes the process down: the backward reads from address zero, as a kernel with a bad pointer does."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor


class BadPointer(torch.autograd.Function):
    """2 * x, whose backward ends the process with a segmentation fault."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        ctypes.string_at(0)
        return 2 * grad_output
