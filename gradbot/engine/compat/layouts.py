"""Tensors of any layout as the entries that a numerical derivative moves, one at a time.

A strided tensor is moved in its own memory, so that functions that captured it by closure see the step too. So are the
values of a sparse tensor of which only the specified elements count. Otherwise a stand-in is moved and passed instead:
the sparse tensor with every element specified, or an mkldnn tensor made anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
SPARSE = (torch.sparse_coo, *COMPRESSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """The entries of one checked tensor.

    `entries` is strided and outside autograd. `positions[k]` is the row-major position, in the tensor as a dense one,
    of the k-th entry in row-major order. `passed()` is what the function gets in the tensor's place; it shows the
    entries as they are at that moment.
    """

    tensor: Tensor
    entries: Tensor
    positions: Tensor
    passed: Callable[[], Tensor]

    @property
    def parts(self) -> tuple[complex, ...]:
        """Directions in which an entry moves: 1, and i where it is complex."""
        return (1, 1j) if self.entries.is_complex() else (1,)

    def index(self, which: int) -> tuple[int, ...]:
        """Where entry `which` stands in `entries`."""
        return unravel(which, self.entries.shape)

    @contextlib.contextmanager
    def moved(self, which: int, step: complex) -> Iterator[complex]:
        """Moves one entry by `step` and yields the value it really took; puts it back in any case."""
        entry = self.entries[self.index(which)]
        kept = entry.clone()
        try:
            entry.fill_(kept.item() + step)
            yield entry.item()
        finally:
            entry.copy_(kept)

    @contextlib.contextmanager
    def shifted(self, direction: Tensor, step: float) -> Iterator[None]:
        """Moves all entries by `step * direction`; puts them back in any case."""
        kept = self.entries.clone()
        try:
            self.entries.copy_(kept + step * direction)
            yield
        finally:
            self.entries.copy_(kept)


def coordinates(tensor: Tensor, masked: bool) -> Coordinates:
    """The entries of `tensor` to move; of a sparse one only those specified where `masked`, else all."""
    if tensor.is_mkldnn:
        dense = tensor.detach().to_dense().clone()
        return Coordinates(tensor=tensor, entries=dense, positions=_all(tensor), passed=lambda: _like_mkldnn(dense))
    if tensor.layout not in SPARSE:
        # .data, so that steps do not count as in-place changes
        return Coordinates(tensor=tensor, entries=tensor.data, positions=_all(tensor), passed=lambda: tensor)
    if masked:
        return Coordinates(
            tensor=tensor, entries=values(tensor).data, positions=specified(tensor), passed=lambda: tensor
        )
    full, positions = densified(tensor)
    return Coordinates(tensor=tensor, entries=values(full).data, positions=positions, passed=lambda: full)


def values(tensor: Tensor) -> Tensor:
    """The strided tensor that holds the specified values."""
    return tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()


def specified(tensor: Tensor) -> Tensor:
    """Row-major positions, in the dense tensor, of the specified values in their own order."""
    held = values(tensor.detach())
    if tensor.layout is torch.sparse_coo:
        strides = _strides(tensor.shape[: tensor.sparse_dim()])
        inner = held[0].numel() if len(held) else 0
        outer = (tensor._indices() * torch.tensor(strides, device=held.device).unsqueeze(1)).sum(0)
        return (outer.unsqueeze(1) * inner + torch.arange(inner, device=held.device)).reshape(-1).cpu()
    numbers = torch.arange(1, held.numel() + 1, dtype=torch.float64, device=held.device).reshape(held.shape)
    dense = _with_values(tensor, numbers).to_dense().reshape(-1)
    places = dense.nonzero().squeeze(1)
    return places[dense[places].argsort()].cpu()


def densified(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The same sparse tensor with every element specified, and the positions of its values."""
    numbers = torch.arange(1, tensor.numel() + 1, dtype=torch.float64, device=tensor.device).reshape(tensor.shape)
    dense = tensor.detach().to_dense().reshape(-1)
    if tensor.layout is torch.sparse_coo:
        pattern = numbers.to_sparse(tensor.sparse_dim())
        positions = pattern._values().long() - 1
        full = torch.sparse_coo_tensor(
            pattern._indices(), dense[positions], tensor.shape, is_coalesced=True, check_invariants=False
        )
    else:
        pattern = numbers.to_sparse(layout=tensor.layout, blocksize=_block(tensor), dense_dim=tensor.dense_dim())
        positions = pattern.values().long() - 1
        full = _with_values(pattern, dense[positions])
    return full.requires_grad_(tensor.requires_grad), positions.reshape(-1).cpu()


def unravel(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of the element at a row-major position."""
    index = []
    for size in reversed(shape):
        place, last = divmod(place, size)
        index.append(last)
    return tuple(reversed(index))


def flat_reals(tensor: Tensor) -> Tensor:
    """Any tensor as a dense vector of float64 on the CPU, complex elements as pairs; a copy."""
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1).to(device="cpu", dtype=torch.float64, copy=True)


def _with_values(tensor: Tensor, held: Tensor) -> Tensor:
    by_rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    compressed = tensor.crow_indices() if by_rows else tensor.ccol_indices()
    plain = tensor.col_indices() if by_rows else tensor.row_indices()
    return torch.sparse_compressed_tensor(
        compressed, plain, held, tensor.shape, layout=tensor.layout, check_invariants=False
    )


def _block(tensor: Tensor) -> tuple[int, int] | None:
    if tensor.layout not in (torch.sparse_bsr, torch.sparse_bsc):
        return None
    batch = tensor.values().dim() - 3 - tensor.dense_dim()
    rows, columns = tensor.values().shape[batch + 1 : batch + 3]
    return rows, columns


def _like_mkldnn(dense: Tensor) -> Tensor:
    return dense.to_mkldnn()


def _all(tensor: Tensor) -> Tensor:
    return torch.arange(tensor.numel(), device="cpu")


def _strides(shape: torch.Size) -> list[int]:
    strides, reach = [], 1
    for size in reversed(shape):
        strides.append(reach)
        reach *= size
    return strides[::-1]
