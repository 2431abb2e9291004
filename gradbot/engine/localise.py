"""Where a Jacobian is wrong: slices before entries, every named entry confirmed alone, and whether that is all.

Where the Jacobian was formed, the wrong entries are read from it. Where it is too large, group testing finds them
(`localise_groups`), at a cost that grows with the logarithm of its size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.comparison import Block, Comparison
from gradbot.engine.directional import Point
from gradbot.engine.localise_groups import STEP, Wrong, columns_flagged, rows_flagged, search
from gradbot.engine.maps import dense_maps, dense_profiles, projected_maps
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings, Entry, Evidence, Slice

MOST_ENTRIES = 16
MOST_SLICE_INDICES = 12
MOST_PAIRS = 4
FEW_COLUMNS = 2
DEFAULT_ATOL, DEFAULT_RTOL = 1e-5, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Localised:
    """Where one (output, input) pair is wrong.

    `rows` and `columns` are wrong elements of the output and the input, flat positions, a sample of them where they
    are too many; `evidence` is what a finding shows. `confirmed`: at least one entry differs when looked at alone.
    `named`: `columns` are all there are.
    """

    output: int
    input: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    evidence: Evidence
    confirmed: bool
    named: bool = True


def localise(problem: Problem, comparison: Comparison, settings: CheckSettings, seed: int = 0) -> tuple[Localised, ...]:
    """One `Localised` for each of the first few wrong pairs of a comparison of backward-mode Jacobians."""
    point = Point.of(problem)
    generator = torch.Generator().manual_seed(seed)
    blocks = {(block.output, block.input): block for block in comparison.blocks}
    found = []
    for pair in comparison.wrong_pairs[:MOST_PAIRS]:
        block = blocks.get(pair)
        if block is not None:
            found.append(_from_block(point, block, comparison, settings))
        else:
            found.append(_by_groups(point, *pair, comparison, settings, generator))
    return tuple(found)


def from_block(problem: Problem, block: Block, comparison: Comparison) -> Localised:
    """What a formed Jacobian shows, whose entries are not looked at again."""
    return _from_block(Point.of(problem), block, comparison, None)


def _from_block(point: Point, block: Block, comparison: Comparison, settings: CheckSettings | None) -> Localised:
    wrong = block.wrong
    error = (block.analytical - block.numerical).abs().nan_to_num(math.inf, math.inf)
    order = torch.where(wrong, error, -1.0).reshape(-1).argsort(descending=True)[: min(MOST_ENTRIES, int(wrong.sum()))]
    places = [divmod(int(each), wrong.shape[1]) for each in order]
    output_shape, input_shape = _shapes(point, block.output, block.input)
    entries = tuple(
        Entry(
            output_index=_index(row, output_shape),
            input_index=_index(column, input_shape),
            analytical=float(block.analytical[row, column]),
            numerical=float(block.numerical[row, column]),
            error=float(error[row, column]),
            tolerance=float(block.tolerance[row, column]),
            error_bar=float(block.error_bar[row, column]),
        )
        for row, column in places
    )
    wrong_rows, wrong_columns = wrong.any(1).nonzero()[:, 0], wrong.any(0).nonzero()[:, 0]
    evidence = Evidence(
        method=comparison.method,
        input_shape=input_shape,
        output_shape=output_shape,
        entries=entries,
        maps=dense_maps(block.analytical, block.numerical),
        profiles=dense_profiles(block.analytical - block.numerical),
        slices=_slices("input", input_shape, wrong_columns) + _slices("output", output_shape, wrong_rows),
        wrong_entries=int(wrong.sum()),
        checked_entries=wrong.numel(),
        complete=True,
        resolution=comparison.resolution,
        coverage=comparison.coverage,
    )
    return Localised(
        output=block.output,
        input=block.input,
        rows=tuple(wrong_rows.tolist()),
        columns=tuple(wrong_columns.tolist()),
        evidence=evidence,
        confirmed=settings is not None and _confirm(point, block.output, block.input, places, settings),
    )


def _confirm(point: Point, output: int, index: int, places: list[tuple[int, int]], settings: CheckSettings) -> bool:
    return any(not _agrees(entry) for entry in entries_at(point, output, index, places[:4], settings))


def entries_at(
    point: Point, output: int, index: int, places: list[tuple[int, int]], settings: CheckSettings
) -> tuple[Entry, ...]:
    """Entries looked at alone: one vjp of a unit cotangent, one element moved, two steps. Positions are flat."""
    output_shape, input_shape = _shapes(point, output, index)
    start = point.rows(output).start
    analytical_rows = {row: point.row(start + row)[index] for row in sorted({row for row, _ in places})}
    columns = {column: _column(point, index, column) for column in sorted({column for _, column in places})}
    entries = []
    for row, column in places:
        numerical, bar = (float(each[start + row]) for each in columns[column])
        analytical = float(analytical_rows[row][column])
        entries.append(
            Entry(
                output_index=_index(row, output_shape),
                input_index=_index(column, input_shape),
                analytical=analytical,
                numerical=numerical,
                error=abs(analytical - numerical),
                tolerance=tolerance(settings, numerical),
                error_bar=bar,
            )
        )
    return tuple(entries)


def tolerance(settings: CheckSettings, numerical: float) -> float:
    """atol + rtol |numerical|, with torch's defaults."""
    atol = DEFAULT_ATOL if settings.atol is None else settings.atol
    rtol = DEFAULT_RTOL if settings.rtol is None else settings.rtol
    return atol + rtol * abs(numerical)


def _agrees(entry: Entry) -> bool:
    if isinstance(entry.analytical, complex) or isinstance(entry.numerical, complex):
        return entry.error <= entry.tolerance + entry.error_bar
    if math.isnan(entry.analytical) and math.isnan(entry.numerical):
        return True
    return entry.analytical == entry.numerical or entry.error <= entry.tolerance + entry.error_bar


def _column(point: Point, index: int, column: int) -> tuple[Tensor, Tensor]:
    """One column of the numerical Jacobian with its error bar: extrapolated over two steps, as Richardson does."""
    direction = point.coordinate(index, column)
    length = float(point.scales[index][column])
    coarse, fine = point.derivative(direction, 2 * STEP), point.derivative(direction, STEP)
    rounding = 8 * point.unit_roundoff * point.values.abs() / (STEP * length)
    return (4 * fine - coarse) / 3, (fine - coarse).abs() + rounding


def _by_groups(
    point: Point,
    output: int,
    index: int,
    comparison: Comparison,
    settings: CheckSettings,
    generator: torch.Generator,
) -> Localised:
    noise = point.noise(generator)
    output_shape, input_shape = _shapes(point, output, index)
    across = search(input_shape, columns_flagged(point, output, index, noise, generator))
    columns = _members(across, generator)
    down = search(
        output_shape,
        rows_flagged(point, output, index, noise, generator, columns=torch.tensor(columns, dtype=torch.long)),
        most_elements=MOST_ENTRIES,
    )
    if down.elements is None and len(columns) > FEW_COLUMNS:
        # In a sparse Jacobian few of many rows belong to any one column: name rows for a few columns.
        columns = columns[:FEW_COLUMNS]
        few = torch.tensor(columns, dtype=torch.long)
        rows = _members(
            search(output_shape, rows_flagged(point, output, index, noise, generator, columns=few)), generator
        )
    else:
        rows = _members(down, generator)
    entries = entries_at(point, output, index, _pairs(point, output, index, rows, columns), settings)
    wrong = sorted((each for each in entries if not _agrees(each)), key=_size, reverse=True)
    maps, profiles = projected_maps(point, output, index, generator, side=32)
    evidence = Evidence(
        method="localised",
        input_shape=input_shape,
        output_shape=output_shape,
        entries=tuple(wrong[:MOST_ENTRIES]),
        maps=maps,
        profiles=profiles,
        slices=_found_slices("input", across) + _found_slices("output", down),
        checked_entries=math.prod(input_shape) * math.prod(output_shape),
        complete=across.complete and any(each is not None for each in across.along),
        resolution=comparison.resolution,
        coverage=comparison.coverage,
    )
    return Localised(
        output=output,
        input=index,
        rows=rows,
        columns=columns,
        evidence=evidence,
        confirmed=bool(wrong),
        named=across.complete and across.elements is not None,
    )


def _pairs(
    point: Point, output: int, index: int, rows: tuple[int, ...], columns: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Rows with columns, those first whose numbers are large: in a sparse Jacobian most pairs hold nothing."""
    start = point.rows(output).start
    rows, columns = rows[:MOST_ENTRIES], columns[:MOST_ENTRIES]
    if not rows or not columns:
        return []
    numerical = torch.stack([_column(point, index, each)[0] for each in columns], 1)[[start + row for row in rows]]
    analytical = torch.stack([point.row(start + row)[index] for row in rows])[:, list(columns)]
    order = (analytical - numerical).abs().nan_to_num(math.inf).reshape(-1).argsort(descending=True)
    places = [divmod(int(each), len(columns)) for each in order[:MOST_ENTRIES]]
    return [(rows[down], columns[across]) for down, across in places]


def _members(wrong: Wrong, generator: torch.Generator) -> tuple[int, ...]:
    """The wrong elements, or a sample from the slices that hold them."""
    if wrong.elements is not None:
        return wrong.elements
    chosen = torch.zeros(MOST_ENTRIES, dtype=torch.long)
    for dim, size in enumerate(wrong.shape):
        indices = wrong.along[dim]
        allowed = torch.arange(size) if indices is None else torch.tensor(indices)
        drawn = allowed[torch.randint(len(allowed), (MOST_ENTRIES,), generator=generator)]
        chosen += drawn * math.prod(wrong.shape[dim + 1 :])
    return tuple(sorted(set(chosen.tolist())))


def _found_slices(side: str, wrong: Wrong) -> tuple[Slice, ...]:
    return tuple(
        Slice(side=side, dim=dim, indices=indices, size=size)
        for dim, (indices, size) in enumerate(zip(wrong.along, wrong.shape, strict=True))
        if indices and len(indices) < size
    )


def _slices(side: str, shape: tuple[int, ...], elements: Tensor) -> tuple[Slice, ...]:
    """The dimensions along which few indices hold everything that is wrong."""
    found = []
    for dim, size in enumerate(shape):
        stride = math.prod(shape[dim + 1 :])
        indices = tuple(torch.unique(elements.div(stride, rounding_mode="floor") % size).tolist())
        if indices and len(indices) < size and len(indices) <= MOST_SLICE_INDICES:
            found.append(Slice(side=side, dim=dim, indices=indices, size=size))
    return tuple(found)


def _shapes(point: Point, output: int, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(point.linearization.outputs[output].shape), tuple(point.problem.inputs[index].shape)


def _index(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    indices = []
    for size in reversed(shape):
        position, index = divmod(position, size)
        indices.append(index)
    return tuple(reversed(indices))


def _size(entry: Entry) -> float:
    return math.inf if math.isnan(entry.error) else entry.error
