"""Both Jacobians in full under a memory budget, in chunks of columns that are compared and forgotten."""

from __future__ import annotations

import numpy as np

from gradbot.engine.comparison import Comparison
from gradbot.engine.jacobian.batching import Apply, derivatives_of, differences_of, stack_size, units
from gradbot.engine.jacobian.point import Array, Point
from gradbot.engine.jacobian.suspects import Suspects
from gradbot.engine.jacobian.tolerances import Tolerances


def evaluations(point: Point, direction: str, budget: int) -> int:
    """How often f is evaluated: every column twice, once more for each block of analytical rows that fits."""
    blocks = 1 if direction == "forward" else -(-point.value.size // _block(point, budget))
    return 2 * point.position.size * blocks + point.value.size


def compare_chunked(point: Point, direction: str, tolerances: Tolerances, budget: int) -> Comparison:
    """The verdict from every entry, whatever their number, in `budget` bytes over the function's own."""
    suspects = Suspects(point=point, tolerances=tolerances)
    rows, columns = point.value.size, point.position.size
    differentiate, apply = differences_of(point, tolerances.eps), derivatives_of(point, direction)
    block = max(rows, 1) if direction == "forward" else _block(point, budget)
    width = min(max(columns, 1), stack_size(point, budget))
    for top in range(0, rows, block):
        inside = range(top, min(rows, top + block))
        kept = None if direction == "forward" else _rows(point, inside, width, apply)
        for start in range(0, columns, width):
            chunk = range(start, min(columns, start + width))
            measured = differentiate(chunk)
            suspects.add(
                np.arange(inside.start, inside.stop)[:, None],
                np.arange(chunk.start, chunk.stop)[None, :],
                apply(units(chunk, columns)).T if kept is None else kept[:, chunk.start : chunk.stop],
                measured.estimate[inside.start : inside.stop],
                measured.noise[inside.start : inside.stop],
            )
    return suspects.conclude(direction, "dense chunked")


def _block(point: Point, budget: int) -> int:
    """How many analytical rows are kept at once."""
    return max(1, min(point.value.size, budget // (3 * 8 * max(point.position.size, 1))))


def _rows(point: Point, inside: range, width: int, apply: Apply) -> Array:
    rows = np.empty((len(inside), point.position.size))
    for start in range(0, len(inside), width):
        part = inside[start : start + width]
        rows[start : start + len(part)] = apply(units(part, point.value.size))
    return rows
