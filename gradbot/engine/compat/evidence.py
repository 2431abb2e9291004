"""The worst entries of a wrong Jacobian as plain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradbot.engine.compat.layouts import unravel
from gradbot.model import Entry, Evidence

if TYPE_CHECKING:
    from gradbot.engine.compat.agreement import Pair

MOST_ENTRIES = 8


def evidence(pair: Pair, wrong: Tensor, allowed: Tensor) -> Evidence:
    """The worst of the entries that are `wrong`, with shapes and counts. Parts of complex elements are own entries.

    Indices are those of the elements in their tensors; the last index tells the part of a complex one: 0 real, 1
    imaginary.
    """
    error = (pair.analytical - pair.numerical).abs().nan_to_num(torch.inf, torch.inf)
    # one part of a complex number may be right
    wrong = wrong & ~(error <= 0.1 * allowed)
    score = torch.where(wrong, error, -1.0)
    width = score.shape[1]
    worst = score.reshape(-1).argsort(descending=True)[: min(MOST_ENTRIES, int(wrong.sum()))]
    entries = tuple(_entry(pair, place // width, place % width, allowed) for place in worst.tolist())
    return Evidence(
        method="dense",
        input_shape=tuple(pair.coordinates.tensor.shape),
        output_shape=tuple(pair.output_tensor.shape),
        entries=entries,
        wrong_entries=int(wrong.sum()),
        checked_entries=wrong.numel(),
    )


def _entry(pair: Pair, row: int, column: int, allowed: Tensor) -> Entry:
    output_shape: tuple[int, ...] = tuple(pair.output_tensor.shape)
    input_shape: tuple[int, ...] = tuple(pair.coordinates.tensor.shape)
    parts = len(pair.coordinates.parts)
    element = int(pair.coordinates.positions[column // parts])
    output_place = row // 2 if pair.output_tensor.is_complex() else row
    output_part = (row % 2,) if pair.output_tensor.is_complex() else ()
    input_part = (column % 2,) if parts == 2 else ()
    analytical, numerical = float(pair.analytical[row, column]), float(pair.numerical[row, column])
    return Entry(
        output_index=(*unravel(output_place, output_shape), *output_part),
        input_index=(*unravel(element, input_shape), *input_part),
        analytical=analytical,
        numerical=numerical,
        error=abs(analytical - numerical),
        tolerance=float(allowed[row, column]),
        error_bar=float(pair.bars[row, column]),
    )
