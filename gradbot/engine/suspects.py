"""Which entries of a mismatching Jacobian are worth a closer look."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from gradbot.engine.comparison import Comparison
from gradbot.engine.directional import Point
from gradbot.engine.localise_groups import STEP, columns_flagged, search

MOST = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspects:
    """Rows of output `output` and columns of input `input` in which entries differ; flat positions, at most a few."""

    output: int
    input: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]


def suspects(point: Point, output: int, index: int, comparison: Comparison, generator: torch.Generator) -> Suspects:
    """The worst rows and columns of a formed Jacobian, with a few others; else what group testing names."""
    block = next((each for each in comparison.blocks if (each.output, each.input) == (output, index)), None)
    if block is not None:
        wrong = block.wrong
        error = torch.where(wrong, (block.analytical - block.numerical).abs().nan_to_num(math.inf, math.inf), 0.0)
        rows = _worst(error.amax(1), generator)
        columns = _worst(error.amax(0), generator)
        return Suspects(output=output, input=index, rows=rows, columns=columns)
    noise = point.noise(generator)
    shape = tuple(point.problem.inputs[index].shape)
    found = search(shape, columns_flagged(point, output, index, noise, generator), most_indices=8, most_elements=8)
    count = point.inputs[index].numel()
    columns = found.elements or tuple(torch.randperm(count, generator=generator)[:MOST].tolist())
    columns = columns[:MOST]
    reached = torch.zeros(point.sizes[output], dtype=torch.float64)
    own = point.rows(output)
    for column in columns:
        slopes = point.slopes(point.coordinate(index, column), STEP)
        reached = torch.maximum(reached, torch.maximum(slopes[0][own].abs(), slopes[1][own].abs()).nan_to_num(math.inf))
    return Suspects(output=output, input=index, rows=_worst(reached, generator), columns=columns)


def _worst(scores: torch.Tensor, generator: torch.Generator) -> tuple[int, ...]:
    """The highest scores' positions, and a few at random."""
    if len(scores) <= MOST:
        return tuple(range(len(scores)))
    best = scores.argsort(descending=True)[: MOST - 4]
    others = torch.randperm(len(scores), generator=generator)[:4]
    return tuple(sorted({*best.tolist(), *others.tolist()}))
