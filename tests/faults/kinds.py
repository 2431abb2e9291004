"""Ways in which a derivative can be wrong, as functions of the tensor that a right rule would hand on.

A fault takes a gradient (or a tangent) and gives back a wrong one of the same shape. `linear` ones are wrong matrices,
the others wrong in a way that no matrix is. `applies` tells where a fault cannot show in a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Wrong = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`make()` gives a fresh faulty function: some faults remember earlier calls."""

    name: str
    make: Callable[[], Wrong]
    linear: bool = True
    least_dims: int = 0
    least_size: int = 1  # of the last dim, and of all elements
    least_rows: int = 1  # of the first dim
    square: bool = False

    def applies(self, shape: torch.Size) -> bool:
        """Whether the fault changes anything in a tensor of this shape."""
        if len(shape) < self.least_dims or shape.numel() < self.least_size:
            return False
        if self.least_dims and shape[-1] < self.least_size:
            return False
        if shape and shape[0] < self.least_rows:
            return False
        return not self.square or (len(shape) >= 2 and shape[-1] == shape[-2])


def scaled(factor: float) -> Wrong:
    return lambda g: g * factor


def entry_scaled(factor: float) -> Wrong:
    def wrong(g: Tensor) -> Tensor:
        flat = torch.ones(g.numel(), dtype=g.dtype)
        flat[g.numel() // 2] = factor
        return g * flat.view(g.shape)

    return wrong


def row_scaled(factor: float) -> Wrong:
    def wrong(g: Tensor) -> Tensor:
        rows = torch.ones(g.shape[0], dtype=g.dtype)
        rows[g.shape[0] // 2] = factor
        return g * rows.view(-1, *[1] * (g.dim() - 1))

    return wrong


def column_scaled(factor: float) -> Wrong:
    def wrong(g: Tensor) -> Tensor:
        columns = torch.ones(g.shape[-1], dtype=g.dtype)
        columns[-1] = factor
        return g * columns

    return wrong


def mean_subtracted(g: Tensor) -> Tensor:
    return g - g.mean()


def tile_edge(g: Tensor) -> Tensor:
    """The last column is its neighbour's."""
    return torch.cat([g[..., :-1], g[..., -2:-1]], -1)


def tile_multiples(g: Tensor) -> Tensor:
    """Every fourth column is lost."""
    kept = torch.ones(g.shape[-1], dtype=g.dtype)
    kept[3::4] = 0
    return g * kept


def beyond_half(g: Tensor) -> Tensor:
    """Doubled from the middle of the last dim on."""
    factor = torch.ones(g.shape[-1], dtype=g.dtype)
    factor[g.shape[-1] // 2 :] = 2
    return g * factor


def transposed(g: Tensor) -> Tensor:
    return g.transpose(-1, -2)


def rolled(g: Tensor) -> Tensor:
    return g.roll(1, -1)


def flipped(g: Tensor) -> Tensor:
    return g.flip(-1)


def rows_swapped(g: Tensor) -> Tensor:
    order = list(range(g.shape[0]))
    order[0], order[-1] = order[-1], order[0]
    return g[order]


def averaged(g: Tensor) -> Tensor:
    return g.mean().expand(g.shape) + 0 * g


def first_element_only(g: Tensor) -> Tensor:
    return g.reshape(-1)[:1].expand(g.numel()).reshape(g.shape)


def through_bfloat16(g: Tensor) -> Tensor:
    return g.to(torch.bfloat16).to(g.dtype)


def neighbour_leaks(g: Tensor) -> Tensor:
    """Each column gets a hundredth of its neighbour."""
    return g + 0.01 * g.roll(1, -1)


def times_itself(g: Tensor) -> Tensor:
    return g * g.abs()


def absolute(g: Tensor) -> Tensor:
    return g.abs()


def cut_at_zero(g: Tensor) -> Tensor:
    return g.clamp_min(0)


def offset(g: Tensor) -> Tensor:
    return g + 1e-3


def clipped(g: Tensor) -> Tensor:
    return g.clamp(-0.5, 0.5)


def normalised(g: Tensor) -> Tensor:
    return g / g.norm().clamp_min(1e-30)


def ignored(g: Tensor) -> Tensor:
    """The gradient for a cotangent of ones, whatever the cotangent."""
    return torch.ones_like(g)


def stale() -> Wrong:
    """Hands on what the call before was given."""
    before: list[Tensor] = []

    def wrong(g: Tensor) -> Tensor:
        kept = before[0] if before and before[0].shape == g.shape else g
        before[:] = [g.detach().clone()]
        return kept + 0 * g

    return wrong


def _always(wrong: Wrong) -> Callable[[], Wrong]:
    return lambda: wrong


def _fault(name: str, wrong: Wrong, **limits: bool | int) -> Fault:
    return Fault(name=name, make=_always(wrong), **limits)  # type: ignore[arg-type]


FAULTS: Mapping[str, Fault] = {
    each.name: each
    for each in (
        *(_fault(f"x{factor}", scaled(factor)) for factor in (1.002, 1.01, 1.1, 1.5, 2.0, 0.5)),
        _fault("sign", scaled(-1.0)),
        _fault("dropped", scaled(0.0)),
        _fault("entry x1.1", entry_scaled(1.1), least_size=2),
        _fault("entry x2", entry_scaled(2.0), least_size=2),
        _fault("entry dropped", entry_scaled(0.0), least_size=2),
        _fault("row dropped", row_scaled(0.0), least_dims=1),
        _fault("row x1.1", row_scaled(1.1), least_dims=1),
        _fault("last column sign", column_scaled(-1.0), least_dims=1),
        _fault("last column x1.01", column_scaled(1.01), least_dims=1),
        _fault("mean subtracted", mean_subtracted),
        _fault("tile edge", tile_edge, least_dims=1, least_size=2),
        _fault("tile multiples", tile_multiples, least_dims=1, least_size=4),
        _fault("beyond half", beyond_half, least_dims=1, least_size=2),
        _fault("transposed", transposed, least_dims=2, least_size=2, square=True),
        _fault("rolled", rolled, least_dims=1, least_size=2),
        _fault("flipped", flipped, least_dims=1, least_size=2),
        _fault("rows swapped", rows_swapped, least_dims=2, least_rows=2),
        _fault("averaged", averaged, least_size=2),
        _fault("first element only", first_element_only, least_size=2),
        _fault("bfloat16 round trip", through_bfloat16),
        _fault("neighbour leaks", neighbour_leaks, least_dims=1, least_size=2),
        _fault("times itself", times_itself, linear=False),
        _fault("absolute", absolute, linear=False),
        _fault("cut at zero", cut_at_zero, linear=False),
        _fault("offset", offset, linear=False),
        _fault("clipped", clipped, linear=False),
        _fault("normalised", normalised, linear=False, least_size=2),
        _fault("ignored", ignored, linear=False),
        Fault(name="stale", make=stale, linear=False),
        _fault("missing conj", torch.conj),
    )
}
"""Every fault by name. "missing conj" shows in complex tensors only."""
