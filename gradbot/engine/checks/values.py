"""How far two sets of gradients are apart. None counts as zeros, NaN equals NaN, sparse counts by its dense values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Values = Sequence[Tensor | None]


def distance(left: Values, right: Values) -> float:
    """The largest absolute difference; infinite where number or shape differ or one side alone is NaN."""
    if len(left) != len(right):
        return float("inf")
    return max((_distance(a, b) for a, b in zip(left, right, strict=True)), default=0.0)


def size(values: Values) -> float:
    """The largest finite magnitude."""
    return max((_size(each) for each in values if each is not None), default=0.0)


def disagrees(found: Values, expected: Values, *, relative: float, scales: Values = ()) -> int | None:
    """The position of the first tensor that differs by more than rounding explains; None where all agree.

    A difference counts relative to the largest of `found`, `expected` and `scales` at that position: where terms
    cancel, what is left is rounding of the terms and not of their sum.
    """
    if len(found) != len(expected):
        return min(len(found), len(expected))
    for position, (one, other) in enumerate(zip(found, expected, strict=True)):
        scale = scales[position] if position < len(scales) else None
        largest = max(_size(each) for each in (one, other, scale) if each is not None or each is other)
        if not _distance(one, other) <= relative * (largest + 1e-2):
            return position
    return None


def where_finite(values: Values, like: Values) -> list[Tensor | None]:
    """Strided values with zeros where `like` is not finite: 0 * inf is NaN in a right derivative too."""
    return [
        each if each is None or usual is None else torch.where(dense(usual).isfinite(), dense(each), 0.0)
        for each, usual in zip(values, like, strict=True)
    ]


def dense(tensor: Tensor) -> Tensor:
    """Detached, strided."""
    tensor = tensor.detach()
    if tensor.dtype is torch.complex32:  # hardly any kernel knows it
        return torch.view_as_real(tensor).float()
    return tensor.to_dense() if tensor.is_mkldnn or tensor.layout is not torch.strided else tensor


def _size(tensor: Tensor | None) -> float:
    if tensor is None or not tensor.numel():
        return 0.0
    return float(dense(tensor).abs().double().nan_to_num(nan=0.0, posinf=0.0).max())


def _distance(left: Tensor | None, right: Tensor | None) -> float:
    if left is None or right is None:
        present = left if left is not None else right
        if present is None or not present.numel():
            return 0.0
        return float(dense(present).abs().double().nan_to_num(nan=torch.inf).max())
    left, right = dense(left), dense(right)
    if left.shape != right.shape:
        return float("inf")
    if torch.equal(left, right):
        return 0.0
    same = (left == right) | (left.isnan() & right.isnan())
    gap = torch.where(same, 0.0, (left - right).abs().double())
    return float(gap.nan_to_num(nan=torch.inf).max())
