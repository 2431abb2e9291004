"""Down-sampled pictures of Jacobians: at most 64 x 64 maps and profiles of at most 256 values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradbot.engine.directional import DOUBLE, Point, signed_uniform
from gradbot.engine.localise_groups import STEP
from gradbot.model import JacobianMap, Profile

MAP_SIDE = 64
PROFILE_SIZE = 256


def dense_maps(analytical: Tensor, numerical: Tensor) -> tuple[JacobianMap, ...]:
    """Maps of two Jacobians, (output elements, input elements), and of their difference."""
    pictures = (("analytical", analytical), ("numerical", numerical), ("error", analytical - numerical))
    return tuple(
        JacobianMap(
            what=what,
            rows=values.shape[1],
            columns=values.shape[0],
            values=_rows(_shrunk(values.T, MAP_SIDE, MAP_SIDE)),
        )
        for what, values in pictures
        if values.numel()
    )


def dense_profiles(error: Tensor) -> tuple[Profile, ...]:
    """The largest |error| of every output element and of every input element; (output elements, input elements)."""
    if not error.numel():
        return ()
    magnitude = error.abs().nan_to_num(math.inf, math.inf)
    return tuple(
        Profile(side=side, size=len(values), values=_values(_shrunk(values[:, None], PROFILE_SIZE, 1)[:, 0]))
        for side, values in (("input", magnitude.amax(0)), ("output", magnitude.amax(1)))
    )


def projected_maps(
    point: Point, output: int, index: int, generator: torch.Generator, *, side: int = MAP_SIDE
) -> tuple[tuple[JacobianMap, ...], tuple[Profile, ...]]:
    """Maps of a Jacobian that is too large to form, from `side` vjps and twice as many forwards.

    Every block's value is vᵀJu over the block with random signs v and u, divided by the root of the block's size: the
    typical magnitude of its entries rather than their largest.
    """
    rows, count = point.rows(output), point.inputs[index].numel()
    row_blocks = _blocks(point.sizes[output], side)
    column_blocks = _blocks(count, side)
    signs = signed_uniform(point.sizes[output], generator).sign()
    gradients = []
    for block in row_blocks:
        cotangent = torch.zeros_like(point.values)
        cotangent[rows][block] = signs[block]
        gradients.append(point.vjp(cotangent)[index])
    analytical = torch.zeros(len(row_blocks), len(column_blocks), dtype=DOUBLE)
    numerical = torch.zeros_like(analytical)
    for across, block in enumerate(column_blocks):
        mask = torch.zeros(count, dtype=DOUBLE)
        mask[block] = 1.0
        change, taken = point.difference(point.direction(generator, only=index, mask=mask), STEP)
        step = taken[index]
        assert step is not None
        signed = change[rows] * signs
        length = float(step.square().mean().sqrt()) * math.sqrt(count) or 1.0
        for down, part in enumerate(row_blocks):
            scale = length * math.sqrt(part.stop - part.start)
            analytical[down, across] = float(gradients[down] @ step) / scale
            numerical[down, across] = float(signed[part].sum()) / scale
    maps = tuple(
        JacobianMap(what=what, rows=count, columns=point.sizes[output], values=_rows(values.T))
        for what, values in (
            ("analytical", analytical),
            ("numerical", numerical),
            ("error", analytical - numerical),
        )
    )
    error = (analytical - numerical).abs()
    profiles = (
        Profile(side="input", size=count, values=_values(error.amax(0))),
        Profile(side="output", size=point.sizes[output], values=_values(error.amax(1))),
    )
    return maps, profiles


def _blocks(size: int, most: int) -> list[slice]:
    count = min(size, most)
    return [slice(each * size // count, (each + 1) * size // count) for each in range(count)]


def _shrunk(values: Tensor, rows: int, columns: int) -> Tensor:
    """The signed entry of largest magnitude of every block."""
    return _shrunk_down(_shrunk_down(values, rows).T, columns).T


def _shrunk_down(values: Tensor, most: int) -> Tensor:
    if len(values) <= most:
        return values
    return torch.stack([_largest(values[block]) for block in _blocks(len(values), most)])


def _largest(block: Tensor) -> Tensor:
    """Of every column the entry of largest magnitude; NaN is larger than any."""
    return block.gather(0, block.abs().nan_to_num(math.inf).argmax(0, keepdim=True))[0]


def _rows(values: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(_values(row) for row in values)


def _values(values: Tensor) -> tuple[float, ...]:
    return tuple(values.tolist())
