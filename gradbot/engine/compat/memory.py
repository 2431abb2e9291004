"""Which elements of tensors lie at the same place in memory.

A numerical derivative moves one element at a time; an element that shares its memory with another one cannot be moved
alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MOST_ELEMENTS = 1 << 22
"""Beyond this many elements places are not enumerated and only strides are looked at."""


def contents(tensor: Tensor) -> Tensor | None:
    """The strided tensor that holds the values; None where memory cannot be looked at."""
    if tensor.layout is torch.sparse_coo:
        return tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return tensor.values()
    return tensor if tensor.layout is torch.strided else None


def has_zero_stride(tensor: Tensor) -> bool:
    """Whether a dimension of more than one element does not move in memory, as after `expand`."""
    held = contents(tensor)
    return held is not None and any(
        stride <= 0 and size > 1 for stride, size in zip(held.stride(), held.size(), strict=True)
    )


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether two elements lie at the same place."""
    held = contents(tensor)
    if held is None or held.numel() < 2:
        return False
    # sorted by stride, a tensor cannot overlap if every dimension steps over all of the smaller ones
    reach = 0
    for stride, size in sorted(zip(held.stride(), held.size(), strict=True)):
        if size > 1:
            if stride <= reach:
                break
            reach += stride * (size - 1)
    else:
        return False
    if held.numel() > _MOST_ELEMENTS:
        return False
    return bool((_offsets(held).sort().values.diff() == 0).any())


def share_memory(left: Tensor, right: Tensor) -> bool:
    """Whether any element of one lies at the place of an element of the other."""
    one, other = contents(left), contents(right)
    if one is None or other is None or not one.numel() or not other.numel():
        return False
    if one.device != other.device or one.device.type == "meta":
        return False
    (low, high), (other_low, other_high) = _span(one), _span(other)
    if high <= other_low or other_high <= low:
        return False
    if one.numel() + other.numel() > _MOST_ELEMENTS or one.element_size() != other.element_size():
        return True
    places = one.data_ptr() + one.element_size() * _offsets(one)
    others = other.data_ptr() + other.element_size() * _offsets(other)
    return bool(torch.isin(places, others).any())


def _span(tensor: Tensor) -> tuple[int, int]:
    reach = sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.size(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


def _offsets(tensor: Tensor) -> Tensor:
    offsets = torch.zeros((), dtype=torch.int64, device="cpu")
    for stride, size in zip(tensor.stride(), tensor.size(), strict=True):
        offsets = offsets.unsqueeze(-1) + stride * torch.arange(size, device="cpu")
    return offsets.reshape(-1)
