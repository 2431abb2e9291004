"""Tensors as real strided ones and back: complex as pairs, sparse as their values, mkldnn as dense.

Sparse tensors are checked by their specified values only (masked semantics): nothing else of them can be perturbed
without another sparsity pattern. A gradient travels back through the very constructors that autograd knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Representation:
    """A checked tensor as a real strided leaf, and how to make the tensor of its own kind from such values."""

    real: Tensor
    restore: Callable[[Tensor], Tensor]


def represent(tensor: Tensor) -> Representation:
    """The tensor itself where it is real and strided; otherwise a new leaf that holds its values."""
    if tensor.is_mkldnn:
        return Representation(real=_leaf(tensor.detach().to_dense()), restore=lambda real: real.to_mkldnn())
    if tensor.layout is not torch.strided:
        return _represent_sparse(tensor)
    if tensor.is_complex():
        # view_as_real of a conjugated or negated view is refused: resolve first
        pairs = torch.view_as_real(tensor.detach().resolve_conj().resolve_neg().clone())
        return Representation(real=_leaf(pairs), restore=torch.view_as_complex)
    return Representation(real=tensor, restore=lambda real: real)


def to_real(output: Tensor) -> Tensor:
    """An output as a real strided tensor, differentiably."""
    if output.is_mkldnn or output.layout is not torch.strided:
        output = output.to_dense()
    return torch.view_as_real(output.resolve_conj()) if output.is_complex() else output


def _leaf(values: Tensor) -> Tensor:
    return values.detach().clone().requires_grad_()


def _represent_sparse(tensor: Tensor) -> Representation:
    detached = tensor.detach()
    coo = detached.layout is torch.sparse_coo
    values = detached._values() if coo else detached.values()
    positions = _coo_positions(detached) if coo else _compressed_positions(detached)
    make = partial(_coo_like if coo else _compressed_like, detached)

    def restore(real: Tensor) -> Tensor:
        held = torch.view_as_complex(real) if values.is_complex() else real
        return _Assembled.apply(held, make, positions)  # type: ignore[no-any-return, no-untyped-call]

    # a copy first: the values are a view of a tensor without strides
    copied = values.resolve_conj().clone()
    return Representation(real=_leaf(torch.view_as_real(copied) if values.is_complex() else copied), restore=restore)


class _Assembled(torch.autograd.Function):
    """A sparse tensor of `values` in the pattern of another, differentiable as often as its gradient is.

    torch's own constructors are differentiable once at most, some of them for real values alone. The gradient of the
    values is that of the tensor, sparse or strided, at the places where they stand.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, make: Callable[[Tensor], Tensor], positions: Tensor) -> Tensor:
        ctx.save_for_backward(positions)
        ctx.shape = values.shape
        return make(values.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (positions,) = ctx.saved_tensors
        strided = grad if grad.layout is torch.strided else grad.to_dense()
        return strided.reshape(-1)[positions].view(ctx.shape), None, None


def _coo_like(pattern: Tensor, values: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(
        pattern._indices(), values, pattern.shape, is_coalesced=pattern.is_coalesced(), check_invariants=False
    )


def _compressed_like(pattern: Tensor, values: Tensor) -> Tensor:
    by_rows = pattern.layout in (torch.sparse_csr, torch.sparse_bsr)
    compressed = pattern.crow_indices() if by_rows else pattern.ccol_indices()
    plain = pattern.col_indices() if by_rows else pattern.row_indices()
    return torch.sparse_compressed_tensor(
        compressed, plain, values, pattern.shape, layout=pattern.layout, check_invariants=False
    )


def _coo_positions(tensor: Tensor) -> Tensor:
    """Where each of the values stands in the flattened dense tensor; the same place twice where it is given twice."""
    block = math.prod(tensor.shape[tensor.sparse_dim() :])
    start = torch.zeros(tensor._nnz(), dtype=torch.long, device=tensor.device)
    for index, size in zip(tensor._indices(), tensor.shape, strict=False):
        start = start * size + index
    return (start[:, None] * block + torch.arange(block, device=tensor.device)).reshape(-1)


def _compressed_positions(tensor: Tensor) -> Tensor:
    """Where each of the values stands in the flattened dense tensor, read from a tensor of the values' numbers."""
    count = tensor.values().numel()
    numbered = torch.arange(1, count + 1, dtype=torch.float64, device=tensor.device).view(tensor.values().shape)
    dense = _compressed_like(tensor, numbered).to_dense().reshape(-1).long()
    places = dense.nonzero().squeeze(1)
    positions = torch.empty(count, dtype=torch.long, device=tensor.device)
    positions[dense[places] - 1] = places
    return positions
