"""Entries of a Jacobian in low precision: what a failure of the noise-aware probe can show where it is small.

One column an element, by the same five-point differences, each entry with what its noise and truncation leave open.
"""

from __future__ import annotations

import torch

from gradbot.engine.comparison import Block
from gradbot.engine.directional import Point
from gradbot.engine.low_precision.stencil import noise_of, sample_along

MOST_COLUMNS, MOST_ROWS = 256, 256
_SIGMAS = 5.0


def block_of(point: Point, output: int, index: int, step: float, roundoff: float, resolution: float) -> Block | None:
    """The Jacobian of one output by one input at one step; None where it is large or no entry stands out of its bar.

    `resolution` is the relative error that the dtype lets tell at all.
    """
    columns, rows = point.inputs[index].numel(), point.rows(output)
    if columns > MOST_COLUMNS or point.sizes[output] > MOST_ROWS:
        return None
    analytical = torch.stack([point.row(row)[index] for row in range(rows.start, rows.stop)])
    numerical, bars = [], []
    for column in range(columns):
        sample = sample_along(point, point.coordinate(index, column), step)
        length = sum(float(each.abs().sum()) for each in sample.taken if each is not None)
        noise = noise_of(sample.fourth[None], point.values.abs(), roundoff)
        numerical.append((sample.five / length)[rows])
        bars.append(((_SIGMAS * noise + (sample.five - sample.three).abs()) / length)[rows])
    estimate, bar = torch.stack(numerical, 1), torch.stack(bars, 1)
    largest = float(estimate.abs().nan_to_num(0.0, 0.0, 0.0).max()) if estimate.numel() else 0.0
    block = Block(
        output=output,
        input=index,
        analytical=analytical,
        numerical=estimate,
        error_bar=bar.nan_to_num(torch.inf),
        tolerance=resolution * estimate.abs().clamp_min(0.05 * largest),
    )
    return block if bool(block.wrong.any()) else None
