"""The part of a pair of Jacobians that patterns are looked for in: all of a small one, a sample of a large one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.comparison import Block
from gradbot.engine.directional import Point
from gradbot.engine.localise import Localised
from gradbot.engine.localise_groups import STEP

MOST_DENSE = 1 << 20  # entries
SAMPLE = 24  # rows and columns of a Jacobian that is too large to form


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Entries of the Jacobian of one output by one input.

    `analytical`, `numerical`, `bar` (error of `numerical`) and `allowed` (bar and tolerance) are (rows, columns);
    `rows` and `columns` their flat positions in the output and the input. `numerical_columns(positions)` gives further
    numerical columns in full, (output elements, positions). `x` and `y` are the flat input and output, `others` the
    other inputs, flat. `whole`: every entry is in the view. `gradient(cotangent)` is the vjp for this input.
    """

    output: int
    input: int
    output_shape: tuple[int, ...]
    input_shape: tuple[int, ...]
    rows: Tensor
    columns: Tensor
    analytical: Tensor
    numerical: Tensor
    bar: Tensor
    allowed: Tensor
    whole: bool
    numerical_columns: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    x: Tensor
    y: Tensor
    others: tuple[tuple[str, Tensor], ...] = ()
    complex_input: bool = False
    complex_output: bool = False
    named: bool = True  # every wrong element of the input is in view

    @property
    def error(self) -> Tensor:
        """analytical - numerical, zero where both are equal or NaN."""
        return gap(self.analytical, self.numerical)

    @property
    def wrong(self) -> Tensor:
        """Entries whose error is more than allowed."""
        return ~(self.error.abs() <= self.allowed)

    @property
    def informative(self) -> Tensor:
        """Entries that can tell a wrong rule: something is there, analytically or numerically."""
        size = torch.maximum(self.analytical.abs(), self.numerical.abs())
        return size > 10 * self.bar + 1e-9 * float(size.nan_to_num(0.0, 0.0).max())

    @property
    def telling(self) -> Tensor:
        """Entries in which an error of a tenth would be seen: those that agree speak for the rule."""
        return self.numerical.abs() > 10 * self.allowed

    def numerical_at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Numerical entries at other flat positions, (rows, columns)."""
        return self.numerical_columns(columns)[rows]


def gap(left: Tensor, right: Tensor) -> Tensor:
    """left - right, zero where both are equal or NaN."""
    both = (left == right) | (left.isnan() & right.isnan())
    return torch.where(both, 0.0, left - right)


def view_of(
    point: Point,
    located: Localised,
    block: Block | None,
    *,
    complex_input: bool = False,
    complex_output: bool = False,
    names: tuple[str, ...] = (),
) -> View:
    """The view of one wrong pair: its block where there is one, else sampled around what was localised."""
    output, index = located.output, located.input
    start = point.rows(output).start
    own = point.rows(output)

    def gradient(cotangent: Tensor) -> Tensor:
        whole = torch.zeros_like(point.values)
        whole[own] = cotangent
        return point.vjp(whole)[index]

    if block is not None:
        # What is not known numerically speaks neither for a pattern nor against it.
        unknown = block.error_bar.isinf()
        numerical = torch.where(unknown, block.analytical, block.numerical)
        rows, columns = torch.arange(numerical.shape[0]), torch.arange(numerical.shape[1])
        analytical, tolerance = block.analytical, block.tolerance
        bar = torch.where(unknown, 0.0, block.error_bar)

        def numerical_columns(positions: Tensor) -> Tensor:
            return numerical[:, positions]
    else:
        cache: dict[int, tuple[Tensor, Tensor]] = {}

        def column(position: int) -> tuple[Tensor, Tensor]:
            if position not in cache:
                direction = point.coordinate(index, position)
                coarse, fine = point.derivative(direction, 2 * STEP)[own], point.derivative(direction, STEP)[own]
                length = STEP * float(point.scales[index][position])
                rounding = 8 * point.unit_roundoff * point.values[own].abs() / length
                cache[position] = ((4 * fine - coarse) / 3, (fine - coarse).abs() + rounding)
            return cache[position]

        def numerical_columns(positions: Tensor) -> Tensor:
            return torch.stack([column(each)[0] for each in positions.tolist()], 1)

        columns = _sampled_columns(point, located)
        full = numerical_columns(columns)
        rows = _sampled_rows(full, located)
        analytical = torch.stack([point.row(start + row)[index] for row in rows.tolist()])[:, columns]
        numerical = full[rows]
        bar = torch.stack([column(each)[1] for each in columns.tolist()], 1)[rows]
        tolerance = 1e-6 * numerical.abs().clamp_min(float(numerical.abs().mean()))

    return View(
        output=output,
        input=index,
        output_shape=tuple(point.linearization.outputs[output].shape),
        input_shape=tuple(point.problem.inputs[index].shape),
        rows=rows,
        columns=columns,
        analytical=analytical,
        numerical=numerical,
        bar=bar,
        allowed=bar + tolerance,
        whole=block is not None,
        numerical_columns=numerical_columns,
        gradient=gradient,
        x=point.inputs[index],
        y=point.values[own],
        others=tuple(
            (names[each] if each < len(names) else f"input {each}", values)
            for each, values in enumerate(point.inputs)
            if each != index
        ),
        named=located.named,
        complex_input=complex_input,
        complex_output=complex_output,
    )


def _sampled_columns(point: Point, located: Localised) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    count = point.inputs[located.input].numel()
    chosen = list(located.columns[: 2 * SAMPLE // 3])
    chosen += torch.randperm(count, generator=generator)[: SAMPLE - len(chosen)].tolist()
    return torch.tensor(sorted(set(chosen)), dtype=torch.long)


def _sampled_rows(columns: Tensor, located: Localised) -> Tensor:
    """Rows that matter to the columns: the largest of each, then those that were localised, then any."""
    largest = columns.abs().nan_to_num(0.0, 0.0).topk(min(2, len(columns)), dim=0).indices.T.reshape(-1).tolist()
    chosen = dict.fromkeys([*located.rows[: SAMPLE // 2], *largest])
    for each in range(len(columns)):
        if len(chosen) >= SAMPLE:
            break
        chosen.setdefault(each)
    return torch.tensor(sorted(list(chosen)[: 2 * SAMPLE]), dtype=torch.long)


def coordinate(positions: Tensor, shape: tuple[int, ...], dim: int) -> Tensor:
    """The index along `dim` of flat positions."""
    return positions.div(math.prod(shape[dim + 1 :]), rounding_mode="floor") % shape[dim]
