"""Bounded evidence from Jacobians that were formed: the worst entries, down-sampled maps, profiles of the error."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradbot.engine.comparison import Block
from gradbot.model import Entry, Evidence, JacobianMap, Profile

MAP_SIDE = 64
PROFILE_LENGTH = 256
WORST_ENTRIES = 8


def from_block(block: Block, method: str, input_shape: Sequence[int], output_shape: Sequence[int]) -> Evidence:
    """What a block shows, whatever its size. Shapes are those of the input and output as they were compared."""
    wrong = block.wrong
    error = _error(block)
    return Evidence(
        method=method,
        input_shape=tuple(input_shape),
        output_shape=tuple(output_shape),
        entries=worst_entries(block, error, wrong, input_shape, output_shape),
        maps=(
            jacobian_map("analytical", block.analytical),
            jacobian_map("numerical", block.numerical),
            jacobian_map("error", block.analytical - block.numerical),
        ),
        profiles=(profile("input", error.amax(0)), profile("output", error.amax(1))) if error.numel() else (),
        wrong_entries=int(wrong.sum()),
        checked_entries=wrong.numel(),
        complete=True,
    )


def worst_entries(
    block: Block, error: Tensor, wrong: Tensor, input_shape: Sequence[int], output_shape: Sequence[int]
) -> tuple[Entry, ...]:
    """At most `WORST_ENTRIES` wrong entries, those furthest beyond what is allowed first."""
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


def jacobian_map(what: str, jacobian: Tensor) -> JacobianMap:
    """The signed entry of largest magnitude of each part, inputs down and outputs across. `jacobian` as in `Block`."""
    picture = jacobian.T
    rows, columns = picture.shape
    values = _strongest(_strongest(picture, MAP_SIDE).T, MAP_SIDE).T
    return JacobianMap(what=what, rows=rows, columns=columns, values=tuple(tuple(row) for row in values.tolist()))


def profile(side: str, errors: Tensor) -> Profile:
    """Largest errors along one side."""
    values = _strongest(errors.unsqueeze(1), PROFILE_LENGTH).squeeze(1)
    return Profile(side=side, size=errors.numel(), values=tuple(values.tolist()))


def _strongest(values: Tensor, length: int) -> Tensor:
    """At most `length` rows, each the strongest of consecutive ones, column by column. NaN is stronger than all."""
    rows, columns = values.shape
    if rows <= length or columns == 0:
        return values
    stride = -(-rows // length)
    padded = torch.nn.functional.pad(values, (0, 0, 0, -rows % stride)).reshape(-1, stride, columns)
    strength = padded.abs().nan_to_num(nan=torch.inf)
    return padded.gather(1, strength.argmax(1, keepdim=True)).squeeze(1)


def _error(block: Block) -> Tensor:
    error = (block.analytical - block.numerical).abs()
    agree = (block.analytical == block.numerical) | (block.analytical.isnan() & block.numerical.isnan())
    return torch.where(agree, 0.0, error)
