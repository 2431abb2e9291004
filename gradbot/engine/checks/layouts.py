"""The same values laid out otherwise in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Arrange = Callable[[Tensor], Tensor | None]


def transposed(tensor: Tensor) -> Tensor | None:
    """The last two dimensions swapped in memory; None below two dimensions."""
    if tensor.dim() < 2 or min(tensor.shape[-2:]) < 2:
        return None
    return tensor.mT.contiguous().mT


def strided(tensor: Tensor) -> Tensor | None:
    """Every other element of memory twice as large, with an offset; the gaps hold NaN, which no one may read."""
    if tensor.dim() == 0 or not tensor.numel():
        return None
    memory = torch.full((*tensor.shape, 2), float("nan"), dtype=tensor.dtype, device=tensor.device)
    memory[..., 1] = tensor
    return memory[..., 1]


def channels_last(tensor: Tensor) -> Tensor | None:
    """Channels-last memory; None for anything but four dimensions."""
    if tensor.dim() != 4 or not tensor.numel():
        return None
    arranged = tensor.contiguous(memory_format=torch.channels_last)
    return None if arranged.is_contiguous() else arranged


def expanded(tensor: Tensor) -> Tensor | None:
    """One value for all, without memory of its own, as the backward of `sum` hands down."""
    if tensor.numel() < 2:
        return None
    return tensor.flatten()[:1].clone().view((1,) * tensor.dim()).expand(tensor.shape)


def expanded_rows(tensor: Tensor) -> Tensor | None:
    """The first row for all rows, as the backward of `sum(0)` hands down; None below two dimensions."""
    if tensor.dim() < 2 or not tensor.numel():
        return None
    return tensor[:1].clone().expand(tensor.shape)


def copy_of(tensor: Tensor) -> Tensor:
    """The same values in memory laid out alike, gaps and overlaps included."""
    if tensor.layout is not torch.strided or tensor.is_mkldnn:
        return tensor.clone()
    memory = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage()).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


ARRANGEMENTS: tuple[tuple[str, Arrange], ...] = (
    ("transposed", transposed),
    ("non-contiguous", strided),
    ("channels_last", channels_last),
    ("expanded", expanded),
    ("expanded rows", expanded_rows),
)
"""By name. The first `VALUE_PRESERVING` keep the values, the others repeat some of them."""

VALUE_PRESERVING = 3
