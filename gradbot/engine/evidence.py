"""Bounded evidence from Jacobians that were formed: the worst entries, down-sampled maps, profiles of the error."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradbot.engine.comparison import Block
from gradbot.engine.maps import dense_maps, dense_profiles
from gradbot.model import Entry, Evidence

WORST_ENTRIES = 8


def from_block(block: Block, method: str, input_shape: Sequence[int], output_shape: Sequence[int]) -> Evidence:
    """What a block shows, whatever its size. Shapes are those of the input and output as they were compared."""
    wrong = block.wrong
    return Evidence(
        method=method,
        input_shape=tuple(input_shape),
        output_shape=tuple(output_shape),
        entries=worst_entries(block, input_shape, output_shape),
        maps=dense_maps(block.analytical, block.numerical),
        profiles=dense_profiles(block.analytical - block.numerical),
        wrong_entries=int(wrong.sum()),
        checked_entries=wrong.numel(),
        complete=True,
    )


def worst_entries(block: Block, input_shape: Sequence[int], output_shape: Sequence[int]) -> tuple[Entry, ...]:
    """At most `WORST_ENTRIES` wrong entries, those furthest beyond what is allowed first."""
    wrong = block.wrong
    error = _error(block)
    excess = torch.where(wrong, error / (block.tolerance + block.error_bar).clamp_min(1e-300), -1.0)
    count = min(WORST_ENTRIES, int(wrong.sum()))
    places = excess.nan_to_num(nan=torch.inf).flatten().topk(count).indices.tolist()
    columns = block.analytical.shape[1]
    entries = []
    for place in places:
        row, column = divmod(place, columns)
        entries.append(
            Entry(
                output_index=unravel(row, output_shape),
                input_index=unravel(column, input_shape),
                analytical=block.analytical[row, column].item(),
                numerical=block.numerical[row, column].item(),
                error=error[row, column].item(),
                tolerance=block.tolerance[row, column].item(),
                error_bar=block.error_bar[row, column].item(),
            )
        )
    return tuple(entries)


def unravel(index: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The position in `shape` of a flat index."""
    position = []
    for size in reversed(shape):
        index, remainder = divmod(index, size)
        position.append(remainder)
    return tuple(reversed(position))


def _error(block: Block) -> Tensor:
    error = (block.analytical - block.numerical).abs()
    agree = (block.analytical == block.numerical) | (block.analytical.isnan() & block.numerical.isnan())
    return torch.where(agree, 0.0, error)
