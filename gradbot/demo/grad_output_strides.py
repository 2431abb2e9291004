"""Right for a contiguous grad_output, wrong for any other: it reads memory in order, as kernels do.

PyTorch's own gradcheck passes here, because it never hands over a transposed or expanded grad_output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Scale(torch.autograd.Function):
    """3 * x, whose backward takes the storage of grad_output for its values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 3 * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        row_major = [1] * grad_output.dim()
        for dim in range(grad_output.dim() - 2, -1, -1):
            row_major[dim] = row_major[dim + 1] * grad_output.shape[dim + 1]
        if grad_output.untyped_storage().nbytes() < grad_output.numel() * grad_output.element_size():
            return 3 * grad_output
        return 3 * grad_output.as_strided(grad_output.shape, row_major)
