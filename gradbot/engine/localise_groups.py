"""Group testing for wrong entries of a Jacobian too large to form.

Groups of input elements cost forwards, since vjps for a few fixed cotangents serve every group; groups of output
elements cost vjps, since numerical derivatives along a few fixed directions serve every group. Both bisect one
dimension of the tensor's shape at a time, so that a wrong row, column or tile is found as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.directional import DOUBLE, Point, signed_uniform

STEP = 2.0**-17
SMALLEST_RELATIVE_ERROR = 1e-7  # of a projection, beyond its rounding
_TINY = 1e-300

Flagged = Callable[[Tensor], bool]
"""Whether the Jacobians differ on the part that a 0/1 mask over the flat elements selects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """The wrong elements of one side of one Jacobian.

    `along` holds, per dimension, the indices that are wrong, or None where too many are. `elements` are flat positions,
    None where they were too many to name. `complete`: a fresh test of everything else found nothing.
    """

    shape: tuple[int, ...]
    along: tuple[tuple[int, ...] | None, ...]
    elements: tuple[int, ...] | None
    complete: bool
    tests: int


def columns_flagged(
    point: Point, output: int, index: int, noise: Tensor, generator: torch.Generator, *, cotangents: int = 4
) -> Flagged:
    """A test of groups of elements of input `index`, against output `output`: two forwards a draw."""
    rows = point.rows(output)
    fixed = []
    for _ in range(cotangents):
        cotangent = torch.zeros_like(point.values)
        cotangent[rows] = signed_uniform(point.sizes[output], generator)
        fixed.append((cotangent, point.vjp(cotangent)[index]))

    def flagged(mask: Tensor) -> bool:
        for _ in range(2):
            direction = point.direction(generator, only=index, mask=mask)
            change, taken = point.difference(direction, STEP)
            step = taken[index]
            assert step is not None
            change = torch.where(torch.isfinite(change), change, 0.0)
            rounding = noise * (change != 0)
            if any(
                _differ(cotangent, gradient, change, step, rounding, point.unit_roundoff)
                for cotangent, gradient in fixed
            ):
                return True
        return False

    return flagged


def rows_flagged(
    point: Point,
    output: int,
    index: int,
    noise: Tensor,
    generator: torch.Generator,
    *,
    columns: Tensor | None = None,
    directions: int = 2,
) -> Flagged:
    """A test of groups of elements of output `output`, by steps in `columns` of input `index`: one vjp a draw."""
    mask = None
    if columns is not None:
        mask = torch.zeros_like(point.inputs[index])
        mask[columns] = 1.0
    fixed = [point.difference(point.direction(generator, only=index, mask=mask), STEP) for _ in range(directions)]
    rows = point.rows(output)

    def flagged(chosen: Tensor) -> bool:
        cotangent = torch.zeros_like(point.values)
        cotangent[rows] = signed_uniform(point.sizes[output], generator) * chosen
        gradient = point.vjp(cotangent)[index]
        for change, taken in fixed:
            step = taken[index]
            assert step is not None
            finite = torch.where(torch.isfinite(change), change, 0.0)
            if _differ(cotangent, gradient, finite, step, noise * (finite != 0), point.unit_roundoff):
                return True
        return False

    return flagged


def search(shape: tuple[int, ...], flagged: Flagged, *, most_indices: int = 12, most_elements: int = 64) -> Wrong:
    """Finds what is wrong by bisecting every dimension, then the elements that the dimensions leave possible."""
    count = math.prod(shape)
    tally = _Tally(flagged)
    positions = torch.arange(count)
    along = tuple(_bisect(size, _along(tally, positions, shape, dim), most_indices) for dim, size in enumerate(shape))
    elements: tuple[int, ...] | None = None
    # A test draws afresh: should no dimension show anything again, there is nothing to name.
    if any(each == () for each in along):
        return Wrong(shape=shape, along=along, elements=(), complete=False, tests=tally.count)
    if all(each is not None for each in along):
        candidates = _product(shape, [each for each in along if each is not None])
        elements = _split(candidates, count, tally, most_elements)
    mask = torch.ones(count, dtype=DOUBLE)
    if elements is not None:
        mask[torch.tensor(elements, dtype=torch.long)] = 0.0
    else:
        for dim, indices in enumerate(along):
            if indices is not None:
                inside = torch.isin(_coordinate(positions, shape, dim), torch.tensor(indices))
                mask *= (~inside).to(DOUBLE) if _only_bounded(along, dim) else 1.0
        if all(each is None for each in along):
            mask *= 0.0
    complete = not (bool(mask.any()) and tally(mask))
    return Wrong(shape=shape, along=along, elements=elements, complete=complete, tests=tally.count)


class _Tally:
    """Counts tests, because what a search cost is part of what it says."""

    def __init__(self, flagged: Flagged) -> None:
        self._flagged = flagged
        self.count = 0

    def __call__(self, mask: Tensor) -> bool:
        self.count += 1
        return self._flagged(mask)


def _differ(
    cotangent: Tensor, gradient: Tensor, change: Tensor, step: Tensor, rounding: Tensor, unit_roundoff: float
) -> bool:
    """Whether v.(A - N)u is beyond its error: rounding of f, of the vjp, and a little of the signal."""
    analytical, numerical = gradient * step, cotangent * change
    difference = float(analytical.sum() - numerical.sum())
    if not math.isfinite(difference):
        return True
    analytical_size = math.sqrt(float(analytical.square().sum()))
    signal = max(analytical_size, math.sqrt(float(numerical.square().sum())))
    bar = 9.0 * math.sqrt(float((cotangent * rounding).square().sum())) + 24.0 * unit_roundoff * analytical_size
    return abs(difference) > bar + SMALLEST_RELATIVE_ERROR * signal + _TINY


def _along(flagged: Flagged, positions: Tensor, shape: tuple[int, ...], dim: int) -> Callable[[int, int], bool]:
    return lambda low, high: flagged(_between(positions, shape, dim, low, high))


def _bisect(size: int, flagged: Callable[[int, int], bool], most: int) -> tuple[int, ...] | None:
    """Which indices of a range are flagged; None where more than `most` are."""
    if size == 1:
        return (0,)
    found: list[int] = []
    stack = [(0, size)]
    while stack:
        low, high = stack.pop()
        if not flagged(low, high):
            continue
        if high - low == 1:
            found.append(low)
            if len(found) > most:
                return None
        else:
            middle = (low + high) // 2
            stack += [(middle, high), (low, middle)]
    return tuple(found)


def _split(candidates: Tensor, count: int, flagged: Flagged, most: int) -> tuple[int, ...] | None:
    """Which of some flat positions are flagged; None where more than `most` are."""
    found: list[int] = []
    stack = [candidates]
    while stack:
        group = stack.pop()
        mask = torch.zeros(count, dtype=DOUBLE)
        mask[group] = 1.0
        if not flagged(mask):
            continue
        if len(group) == 1:
            found.append(int(group))
            if len(found) > most:
                return None
        else:
            half = len(group) // 2
            stack += [group[half:], group[:half]]
    return tuple(sorted(found))


def _coordinate(positions: Tensor, shape: tuple[int, ...], dim: int) -> Tensor:
    return positions.div(math.prod(shape[dim + 1 :]), rounding_mode="floor") % shape[dim]


def _between(positions: Tensor, shape: tuple[int, ...], dim: int, low: int, high: int) -> Tensor:
    coordinate = _coordinate(positions, shape, dim)
    return ((coordinate >= low) & (coordinate < high)).to(DOUBLE)


def _product(shape: tuple[int, ...], along: list[tuple[int, ...]]) -> Tensor:
    flat_positions = torch.zeros(1, dtype=torch.long)
    for dim, indices in enumerate(along):
        offsets = torch.tensor(indices, dtype=torch.long) * math.prod(shape[dim + 1 :])
        flat_positions = (flat_positions[:, None] + offsets[None, :]).reshape(-1)
    return flat_positions


def _only_bounded(along: tuple[tuple[int, ...] | None, ...], dim: int) -> bool:
    """Whether `dim` is the first dimension with few wrong indices: one such slice covers everything that was found."""
    return dim == next(each for each, indices in enumerate(along) if indices is not None)
