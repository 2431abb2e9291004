"""Walk down from a probe that disagrees to single entries, by halving: log2(rows) vjps, then log2(columns) steps.

Of every half the one with the larger residual is followed, so that each walk ends at one large error. Walks start from
each pair of an output and an input that disagrees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.jacobian.confirm import confirm
from gradbot.engine.jacobian.form import signed_uniform
from gradbot.engine.jacobian.forward import push_forward_move
from gradbot.engine.jacobian.point import Array, Point, inner
from gradbot.engine.jacobian.reverse import pull_back
from gradbot.engine.jacobian.tolerances import Tolerances

Indices: TypeAlias = NDArray[np.intp]

_WALKS = 3
_STEPS = (2.0**-17, 2.0**-21)


def compare_by_descent(
    point: Point, direction: str, tolerances: Tolerances, generator: np.random.Generator
) -> Comparison:
    """The verdict from the entries that walks end at, looked at one by one.

    Errors that are allowed where they are largest are taken for allowed. What no walk finds again is unsure.
    """
    wrong: list[tuple[int, int]] = []
    largest, unsure, found = 0.0, False, 0
    with np.errstate(all="ignore"):
        for output in range(len(point.output_sizes)):
            for index in range(len(point.input_sizes)):
                for walk in range(_WALKS):
                    entry = _walk(point, direction, generator, output, index, _STEPS[walk % 2])
                    if entry is None:
                        break
                    found += 1
                    confirmed = confirm(point, direction, [entry], tolerances)
                    largest, unsure = max(largest, confirmed.largest), unsure or confirmed.unsure
                    if confirmed.wrong:
                        wrong.append((output, index))
                        break
    if wrong:
        verdict, reason = Verdict.DIFFER, ""
    elif found and not unsure:
        verdict, reason = Verdict.AGREE, ""
    else:
        verdict, reason = Verdict.UNSURE, "precision"
    return Comparison(
        verdict=verdict,
        method="probe, largest errors by descent",
        wrong_pairs=tuple(wrong),
        reason=reason,
        largest_relative_error=largest,
    )


def _walk(
    point: Point, direction: str, generator: np.random.Generator, output: int, index: int, step: float
) -> tuple[int, int] | None:
    rows, columns = point.row_slices[output], point.column_slices[index]
    if rows.start == rows.stop or columns.start == columns.stop:
        return None
    move = np.zeros(point.position.size)
    scale = np.abs(point.position[columns])
    typical = float(np.sqrt(np.mean(np.square(scale)))) or 1.0
    move[columns] = signed_uniform(generator, len(scale)) * np.maximum(scale, typical) * step
    difference = point.values_at(point.position + move) - point.values_at(point.position - move)
    if direction == "forward":
        residual = np.abs(2 * push_forward_move(point, move) - difference)[rows]
        row = rows.start + int(np.nan_to_num(residual, nan=np.inf).argmax())
        return row, _column(
            point, row, lambda part: float(push_forward_move(point, part)[row]), np.flatnonzero(move), move
        )
    row = _row(point, generator, np.arange(rows.start, rows.stop), difference, move)
    unit = np.zeros(point.value.size)
    unit[row] = 1.0
    analytical = pull_back(point, unit)
    return row, _column(point, row, lambda part: inner(analytical, part), np.flatnonzero(move), move)


def _row(point: Point, generator: np.random.Generator, rows: Indices, difference: Array, move: Array) -> int:
    """The row whose analytical and numerical derivative along `move` are far apart."""
    weights = signed_uniform(generator, point.value.size)
    while len(rows) > 1:
        halves = rows[: len(rows) // 2], rows[len(rows) // 2 :]
        residuals = []
        for half in halves:
            cotangent = np.zeros(point.value.size)
            cotangent[half] = weights[half]
            residuals.append(abs(2 * inner(pull_back(point, cotangent), move) - inner(cotangent, difference)))
        rows = halves[_larger(residuals)]
    return int(rows[0])


def _column(point: Point, row: int, along: Callable[[Array], float], columns: Indices, move: Array) -> int:
    """The column in which `along`, the analytical derivative of a row along a move, is far from the difference."""
    while len(columns) > 1:
        halves = columns[: len(columns) // 2], columns[len(columns) // 2 :]
        residuals = []
        for half in halves:
            part = np.zeros_like(move)
            part[half] = move[half]
            difference = point.values_at(point.position + part)[row] - point.values_at(point.position - part)[row]
            residuals.append(float(abs(2 * along(part) - difference)))
        columns = halves[_larger(residuals)]
    return int(columns[0])


def _larger(residuals: list[float]) -> int:
    first, second = (np.inf if np.isnan(each) else each for each in residuals)
    return int(second > first)
