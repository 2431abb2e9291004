"""Outputs that are one of many, each as good as any other: what all of them share is what a gradient can be right for.

A decomposition that starts from a random vector gives one of many factors, a basis of a subspace is one of many bases.
The gradient of such an output may be that of what they share, and no step of the output itself shows that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.directional import REFUSALS
from gradbot.engine.prepare import Prepared
from gradbot.engine.projections import span, without_sign

_SAME = 1e-4
"""Of the size: what counts as the same."""
_LARGEST = 1 << 20
"""Elements of a product that is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """An invariant of the outputs. `tight`: random numbers decide all that it leaves out, and nothing else of them."""

    invariant: Callable[..., Any]
    tight: bool


def shared(prepared: Prepared) -> tuple[Shared, ...]:
    """Invariants that a gradient may be right for where it is not that of the outputs, the tightest first."""
    try:
        return _by_draws(prepared) if prepared.subject.seed is not None else _of_bases(prepared)
    except REFUSALS:  # user code that raises, or a dtype without products
        return ()


def _of_bases(prepared: Prepared) -> tuple[Shared, ...]:
    """What outputs span whose columns are orthonormal: it may be for the subspace alone that they stand."""
    bases = {position: span for position in prepared.subject.selected if _is_basis(prepared.outputs[position])}
    return (Shared(invariant=_applied(bases), tight=False),) if bases else ()


def _is_basis(output: Tensor) -> bool:
    """Whether columns are orthonormal, and fewer than would span everything, which tells nothing."""
    values = output.detach()
    return values.layout is torch.strided and _is_matrix(values) and _is_orthonormal(values) and not _is_square(values)


def _is_orthonormal(values: Tensor) -> bool:
    products = values.mH @ values
    unit = torch.eye(values.shape[-1], dtype=values.dtype, device=values.device).expand_as(products)
    return values.shape[-1] > 0 and _same([unit, products])


def _is_square(values: Tensor) -> bool:
    return values.shape[-1] == values.shape[-2]


def _by_draws(prepared: Prepared) -> tuple[Shared, ...]:
    """What is the same under every draw where some outputs are not, the tightest first; nothing where there is no such.

    Columns that draws change by their signs count each for itself, and then all by what they span together, since a
    factor may be meant for its product alone; any others by what they span.
    """
    draws = [prepared.subject.changed(seed=seed).call(prepared.subject.inputs) for seed in (1, 2, 3)]
    found: dict[int, tuple[Callable[[Tensor], Tensor], ...]] = {}
    for position in prepared.subject.selected:
        values = [each[position].detach() for each in draws]
        if any(each.shape != values[0].shape for each in values):
            return ()
        if not _same(values):
            found[position] = tuple(each for each in (without_sign, span) if _is_shared(each, values))
    if not found or not all(found.values()):
        return ()
    tight = {position: invariants[0] for position, invariants in found.items()}
    loose = {position: invariants[-1] for position, invariants in found.items()}
    first = Shared(invariant=_applied(tight), tight=True)
    return (first,) if tight == loose else (first, Shared(invariant=_applied(loose), tight=False))


def _applied(chosen: Mapping[int, Callable[[Tensor], Tensor]]) -> Callable[..., Any]:
    return lambda *outputs: tuple(
        chosen[position](each) if position in chosen else each for position, each in enumerate(outputs)
    )


def _is_shared(invariant: Callable[[Tensor], Tensor], values: list[Tensor]) -> bool:
    if invariant is span and _is_matrix(values[0]) and _is_square(values[0]) and _is_orthonormal(values[0]):
        return False  # what it spans is everything
    return _is_matrix(values[0]) and _same([invariant(each) for each in values])


def _is_matrix(values: Tensor) -> bool:
    return values.dim() >= 2 and values.numel() * values.shape[-2] <= _LARGEST


def _same(values: list[Tensor]) -> bool:
    return all(_size(each - values[0]) <= _SAME * _size(values[0]) for each in values[1:])


def _size(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))
