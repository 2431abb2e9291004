"""Every entry of a Jacobian that falls apart into blocks, at the cost of one block.

Where output rows depend on one index of some input dims only (batch dims, channels, the columns of a weight), columns
with different such indices share an evaluation, like colours in Curtis, Powell and Reid, On the Estimation of Sparse
Jacobian Matrices, 1974. Which index a row depends on is read off log2(n) directions that code the index in bits. The
compression is certified along fresh random directions: what is not certified is not used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradbot.engine.comparison import Comparison
from gradbot.engine.jacobian.batching import Apply, derivatives_of, stack_size
from gradbot.engine.jacobian.form import signed_uniform
from gradbot.engine.jacobian.point import Array, Point
from gradbot.engine.jacobian.reverse import pull_back
from gradbot.engine.jacobian.suspects import Suspects
from gradbot.engine.jacobian.tolerances import Tolerances

Indices = NDArray[np.int64]

_MOST_COLOURS = 4096
_WORTHWHILE = 64  # columns without any structure
_CERTIFICATES = 2
_STRAYS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compressed:
    """One input's numerical Jacobian: `estimate[c, row]` is the entry in column `columns[c, row]`.

    `group` is the batch index of each row, -1 where it does not depend on the input at all; `colour` is that of each
    column of the input.
    """

    estimate: Array
    noise: Array
    columns: Indices
    group: Indices
    colour: Indices


def compare_structured(
    point: Point, direction: str, tolerances: Tolerances, generator: np.random.Generator, budget: int
) -> Comparison | None:
    """The verdict from every entry; None where the Jacobian has no structure that helps, or too fine a noise to see."""
    compressed = []
    with np.errstate(all="ignore"):
        for index in range(len(point.input_sizes)):
            one = _compress(point, index, tolerances.eps, generator, budget)
            if one is None:
                return None
            compressed.append(one)
        suspects = Suspects(point=point, tolerances=tolerances)
        apply = derivatives_of(point, direction)
        for index, one in enumerate(compressed):
            look = _look_forward if direction == "forward" else _look_reverse
            look(point, index, one, apply, suspects, budget)
    return suspects.conclude(direction, "structured")


def _compress(point: Point, index: int, eps: float, generator: np.random.Generator, budget: int) -> _Compressed | None:
    shape = tuple(point.problem.inputs[index].shape)
    size = point.input_sizes[index]
    coordinates = np.unravel_index(np.arange(size), shape) if shape else ()
    reference = signed_uniform(generator, size)
    whole, noise = _along(point, index, reference, eps)
    batch: list[int] = []
    decoded: list[Indices] = []
    for dim, length in enumerate(shape):
        found = _decode(point, index, reference, whole, noise, coordinates[dim], length, eps)
        if found is not None:
            batch.append(dim)
            decoded.append(found)
    inner = [dim for dim in range(len(shape)) if dim not in batch]
    colours = math.prod(shape[dim] for dim in inner)
    unstructured = colours == size and size > _WORTHWHILE
    if unstructured or colours > _MOST_COLOURS or colours * point.value.size * 8 * 6 > budget or size == 0:
        return None
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    colour = _ravel([coordinates[dim] for dim in inner], [shape[dim] for dim in inner], size)
    group = _ravel(decoded, [shape[dim] for dim in batch], point.value.size)
    group[np.abs(whole) <= 1e-9 + 4 * noise] = -1
    within = np.zeros(point.value.size, dtype=np.int64)
    for dim, found in zip(batch, decoded, strict=True):
        within += found * strides[dim]
    offset = np.zeros(colours, dtype=np.int64)
    inner_indices = np.unravel_index(np.arange(colours), [shape[dim] for dim in inner]) if inner else ()
    for dim, position in zip(inner, inner_indices, strict=True):
        offset += position * strides[dim]
    columns = offset[:, None] + within[None, :]
    estimate, noises = np.empty((colours, point.value.size)), np.empty((colours, point.value.size))
    for each in range(colours):
        estimate[each], noises[each] = _along(point, index, (colour == each).astype(np.float64), eps)
    for _ in range(_CERTIFICATES):
        direction = signed_uniform(generator, size)
        terms = estimate * direction[columns]
        straight, spread = _along(point, index, direction, eps)
        allowed = 1e-6 * (np.abs(terms).sum(0) + 1) + 4 * spread + noises.sum(0)
        if not (np.abs(terms.sum(0) - straight) <= allowed).all():
            return None
    return _Compressed(estimate=estimate, noise=noises, columns=columns, group=group, colour=colour)


def _along(point: Point, index: int, direction: Array, eps: float) -> tuple[Array, Array]:
    """The numerical derivative along a direction of one input, and a bound of its rounding error."""
    inside = point.column_slices[index]
    values = []
    for move in (eps, -eps):
        position = point.position.copy()
        position[inside] += move * direction
        values.append(point.values_at(position))
    noise = np.maximum(np.abs(values[0]), np.abs(values[1])) * (8 * point.unit_roundoff / (2 * eps))
    return (values[0] - values[1]) / (2 * eps), noise


def _decode(
    point: Point,
    index: int,
    reference: Array,
    whole: Array,
    noise: Array,
    coordinate: Indices,
    length: int,
    eps: float,
) -> Indices | None:
    """For each row the one index of this dim that it depends on; None where some row depends on several."""
    decoded = np.zeros(point.value.size, dtype=np.int64)
    tolerance = 1e-6 * np.abs(whole) + 1e-9 + 4 * noise
    for bit in range(max(length - 1, 0).bit_length()):
        part, _ = _along(point, index, reference * ((coordinate >> bit) & 1), eps)
        one, zero = np.abs(part - whole) <= tolerance, np.abs(part) <= tolerance
        if not (one | zero).all():
            return None
        decoded += (one & ~zero).astype(np.int64) << bit
    return decoded if (decoded < length).all() else None


def _ravel(indices: list[Indices], lengths: list[int], size: int) -> Indices:
    """One index for several; zeros where there are none."""
    if not indices:
        return np.zeros(size, dtype=np.int64)
    return np.asarray(np.ravel_multi_index(tuple(indices), lengths), dtype=np.int64)


def _look_forward(point: Point, index: int, one: _Compressed, apply: Apply, suspects: Suspects, budget: int) -> None:
    """A jvp of all columns of a colour gives one entry a row."""
    rows, start = np.arange(point.value.size), point.input_offsets[index]
    chunk = stack_size(point, budget)
    for first in range(0, len(one.estimate), chunk):
        colours = np.arange(first, min(len(one.estimate), first + chunk))
        tangents = np.zeros((len(colours), point.position.size))
        weights = _weights(point.input_sizes[index])
        tangents[:, point.column_slices[index]] = weights * (one.colour[None, :] == colours[:, None])
        inside = slice(first, first + len(colours))
        columns = one.columns[inside]
        pushed = apply(tangents) / weights[columns]
        suspects.add(rows[None, :], start + columns, pushed, one.estimate[inside], one.noise[inside])


def _look_reverse(point: Point, index: int, one: _Compressed, apply: Apply, suspects: Suspects, budget: int) -> None:
    """A vjp of one row of each group gives all of these rows. What falls on columns of no such row must be zero."""
    start, size = point.input_offsets[index], point.input_sizes[index]
    _look_at_independent(point, index, np.flatnonzero(one.group < 0), suspects)
    rank, weights = _ranks(one.group), _weights(point.value.size)
    chunk = stack_size(point, budget)
    ranks = int(rank.max(initial=-1)) + 1
    for first in range(0, ranks, chunk):
        taken = range(first, min(ranks, first + chunk))
        cotangents = weights * (rank[None, :] == np.arange(taken.start, taken.stop)[:, None])
        gradients = apply(cotangents)[:, point.column_slices[index]]
        for each, gradient in zip(taken, gradients, strict=True):
            rows = np.flatnonzero(rank == each)
            columns = one.columns[:, rows]
            pulled = gradient[columns] / weights[rows]
            suspects.add(rows[None, :], start + columns, pulled, one.estimate[:, rows], one.noise[:, rows])
            unused = np.ones(size, dtype=np.bool_)
            unused[columns.reshape(-1)] = False
            stray = np.flatnonzero(unused & ~(np.abs(gradient) <= suspects.tolerances.atol))
            for column in stray[:_STRAYS]:
                row = _row_of(point, rows, start + int(column))
                suspects.add(np.array([row]), np.array([start + column]), gradient[[column]], np.zeros(1), np.zeros(1))


def _weights(count: int) -> Array:
    """Factors around one, all different: with equal ones a permutation of equal entries would not show."""
    weights: Array = 1 + 0.5 * np.sin(1.0 + 2.399963 * np.arange(count))
    return weights


def _ranks(group: Indices) -> Indices:
    """The position of each row among those of its group; -1 for rows of no group."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered, side="left")
    ranks[group < 0] = -1
    return ranks


def _look_at_independent(point: Point, index: int, rows: Indices, suspects: Suspects) -> None:
    """Rows that do not depend on an input must have no gradient by it, all of them together."""
    if not len(rows):
        return
    cotangent = np.zeros(point.value.size)
    cotangent[rows] = _weights(len(rows))
    gradient = pull_back(point, cotangent)
    start = point.input_offsets[index]
    inside = gradient[start : start + point.input_sizes[index]]
    for column in np.flatnonzero(~(np.abs(inside) <= suspects.tolerances.atol))[:_STRAYS]:
        row = _row_of(point, rows, start + int(column))
        suspects.add(np.array([row]), np.array([start + column]), inside[[column]], np.zeros(1), np.zeros(1))


def _row_of(point: Point, rows: Indices, column: int) -> int:
    """Which of these rows the analytical Jacobian has its entry of a column in, by halving."""
    while len(rows) > 1:
        half = rows[: len(rows) // 2]
        cotangent = np.zeros(point.value.size)
        cotangent[half] = 1.0
        rows = half if pull_back(point, cotangent)[column] != 0 else rows[len(rows) // 2 :]
    return int(rows[0])
