"""Look at single entries of a Jacobian, unbatched and at several steps, before any is called wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gradbot.engine.jacobian.forward import push_forward
from gradbot.engine.jacobian.point import Array, Point
from gradbot.engine.jacobian.refine import refine_column
from gradbot.engine.jacobian.reverse import pull_back
from gradbot.engine.jacobian.singular import singular_rows
from gradbot.engine.jacobian.tolerances import Tolerances

_MOST = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """Which of the looked at (row, column) entries are wrong.

    `unsure`: some could not be decided. `largest`: the largest relative error that is real and allowed. `complete`:
    all suspects were looked at.
    """

    wrong: tuple[tuple[int, int], ...]
    unsure: bool
    largest: float
    complete: bool


def confirm(point: Point, direction: str, suspects: Iterable[tuple[int, int]], tolerances: Tolerances) -> Confirmed:
    """Decide entries that something speaks against; of very many a spread sample."""
    listed = list(dict.fromkeys(suspects))
    stride = -(-len(listed) // _MOST) or 1
    by_column: dict[int, list[int]] = {}
    for row, column in listed[::stride]:
        by_column.setdefault(column, []).append(row)
    wrong: list[tuple[int, int]] = []
    unsure, largest = False, 0.0
    known: dict[int, Array] = {}
    for column, rows in by_column.items():
        analytical = _analytical(point, direction, rows, column, known)
        estimate, bar, confirmed = refine_column(point, column, analytical, tolerances, rows)
        with np.errstate(all="ignore"):
            error, allowed = np.abs(analytical - estimate), tolerances.allowed(estimate)
            undecided = ~confirmed & ~(error + bar <= allowed) & ~(error <= allowed)
            if undecided.any():
                confirmed |= undecided & singular_rows(point, column, tolerances.eps)[rows]
                unsure = unsure or bool((undecided & ~confirmed).any())
            relative = error / np.maximum(np.abs(estimate), np.abs(analytical))
            negligible = 1e-9 * np.nan_to_num(np.abs(estimate)).max(initial=0.0)
            real = ~confirmed & (error > np.maximum(2 * bar, negligible)) & (relative > 1e-5) & (error <= allowed)
        largest = max(largest, float(relative[real].max()) if real.any() else 0.0)
        wrong += [(row, column) for row, bad in zip(rows, confirmed, strict=True) if bad]
    return Confirmed(wrong=tuple(wrong), unsure=unsure, largest=largest, complete=stride == 1)


def _analytical(point: Point, direction: str, rows: list[int], column: int, known: dict[int, Array]) -> Array:
    if direction == "forward":
        return push_forward(point, _unit(point.position.size, column))[rows]
    for row in rows:
        if row not in known:
            known[row] = pull_back(point, _unit(point.value.size, row))
    return np.array([known[row][column] for row in rows])


def _unit(size: int, index: int) -> Array:
    unit = np.zeros(size)
    unit[index] = 1.0
    return unit
