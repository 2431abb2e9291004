"""Fast mode: projections of both Jacobians on a few signed random vectors, before any Jacobian is formed.

For every input a direction u, for every output a cotangent v: v' (J u) from two evaluations against (v' J) u from one
backward. The entries of u and v have magnitudes from 0.5 to 1.5 and random signs, so that errors of any pattern cannot
cancel but by chance. What agrees to within rounding, far below the tolerances, agrees entry by entry; anything else is
left to the full Jacobians. The verdict is therefore that of the full comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.compat.agreement import Scene
from gradbot.engine.compat.backward import rows_twice
from gradbot.engine.compat.forward import jvp, signed_like
from gradbot.engine.compat.layouts import Coordinates, flat_reals
from gradbot.engine.compat.numerical import difference, evaluate, rounding_of, unit_in_last_place
from gradbot.engine.compat.outputs import refuse_change

SMALL = 32
"""Up to this many rows and columns together, full Jacobians cost no more than projections."""

DRAWS = 2
HALVES = 4
APART = 1e-3
RELATIVE = 2e-9
RELATIVE_WHEN_HUGE = 1e-5
HUGE = 1 << 27
"""Beyond this many entries a full Jacobian is formed only for what clearly disagrees."""

UNITS = 8.0
SHARE = 0.1
"""What rounding may hide, as a share of what the caller allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """A direction `entries` in one input, as real `columns`, and the slopes of all rows along it with their noise."""

    entries: Tensor
    columns: Tensor
    slopes: Tensor
    noise: Tensor


def is_small(scene: Scene, coordinates: Sequence[Coordinates]) -> bool:
    """Whether projections would save nothing."""
    rows, columns = _size(scene, coordinates)
    return rows + columns <= SMALL


def _size(scene: Scene, coordinates: Sequence[Coordinates]) -> tuple[int, int]:
    rows = sum(each.stop - each.start for each in scene.base.rows.values())
    return rows, sum(each.entries.numel() * len(each.parts) for each in coordinates)


def _relative(scene: Scene, coordinates: Sequence[Coordinates]) -> float:
    """How far two projections may differ, relative to their terms: less than one entry that is wrong would cause."""
    rows, columns = _size(scene, coordinates)
    if rows * columns > HUGE:
        return RELATIVE_WHEN_HUGE
    entries = max(rows, 1) * math.sqrt(max(columns, 1))
    return min(max(SHARE * scene.options.rtol / entries, RELATIVE), RELATIVE_WHEN_HUGE)


def agrees_backward(scene: Scene, coordinates: Sequence[Coordinates], generator: torch.Generator) -> bool:
    """Whether projections of all backward Jacobians agree with the numerical ones to within rounding.

    Raises:
        GradcheckError: the backward returns something else when it is run again.
    """
    for _ in range(DRAWS):
        directions = [_direction(scene, each, signed_like(each.entries, generator)) for each in coordinates]
        if not scene.base.differentiable:
            return all(not direction.slopes.any() for direction in directions)
        for position in scene.base.differentiable:
            cotangent = flat_reals(signed_like(scene.base.all[position], generator))
            own = scene.base.rows[position]
            sizes = torch.stack([each.slopes[own].abs() for each in directions]).amax(0)
            for mask in _layers(sizes, scene.options.atol):
                if not _output_agrees(scene, coordinates, directions, position, cotangent * mask):
                    return False
    return True


def _output_agrees(
    scene: Scene,
    coordinates: Sequence[Coordinates],
    directions: Sequence[Direction],
    position: int,
    weights: Tensor,
) -> bool:
    """One output against all inputs; `weights` are a cotangent as reals, a + i b being the weights a and b."""
    own, cotangent = scene.base.rows[position], _like(scene.base.all[position], weights)
    rows = rows_twice(scene.subject, scene.base, position, cotangent, coordinates, scene.options)
    for row, each, direction in zip(rows, coordinates, directions, strict=True):
        for number, mask in enumerate(_layers(row.abs(), scene.options.atol)):
            seen = direction if number == 0 else _direction(scene, each, _like(each.entries, direction.columns * mask))
            products = weights * seen.slopes[own], row * seen.columns
            scale = sum(float(terms.abs().sum()) for terms in products)
            noise = UNITS * float((weights.abs() * seen.noise[own]).sum())
            gap = abs(float(products[0].sum()) - float(products[1].sum()))
            if not gap <= _relative(scene, coordinates) * scale + noise <= _allowed(scene, scale):
                return False
    return True


def agrees_forward(scene: Scene, coordinates: Sequence[Coordinates], generator: torch.Generator) -> bool:
    """Whether jvps along random directions in every input agree with numerical slopes, row by row."""
    relative = _relative(scene, coordinates)
    for position, each in zip(scene.subject.checked, coordinates, strict=True):
        for entries in _halves(each, generator):
            direction = _direction(scene, each, entries)
            found = jvp(scene.subject, scene.base, {position: entries}, scene.options)
            for place, own in scene.base.rows.items():
                if place not in scene.base.differentiable and place not in found.present:
                    return False  # whether this one counts is for the full comparison to say
                slopes, tangent = direction.slopes[own], found.rows[own]
                scale = slopes.abs() + tangent.abs()
                bars = relative * scale + UNITS * direction.noise[own]
                allowed = 0.5 * scene.options.atol + SHARE * scene.options.rtol * scale
                if not (((slopes - tangent).abs() <= bars) & (bars <= allowed)).all():
                    return False
    return True


def _allowed(scene: Scene, scale: float) -> float:
    return 0.5 * scene.options.atol + SHARE * scene.options.rtol * scale


def _layers(sizes: Tensor, atol: float) -> Iterator[Tensor]:
    """Masks: everything, then what is far smaller than the largest, and so on: large terms drown small ones."""
    mask = torch.ones_like(sizes, dtype=torch.bool)
    while mask.any():
        yield mask
        largest = float(sizes[mask].max())
        if not largest > atol:
            return
        mask = mask & (sizes < APART * largest)


def _halves(coordinates: Coordinates, generator: torch.Generator) -> Iterator[Tensor]:
    """Directions in all entries, then in random halves of them and what is left: a huge column hides small ones."""
    for _ in range(DRAWS):
        yield signed_like(coordinates.entries, generator)
    for _ in range(HALVES):
        entries = signed_like(coordinates.entries, generator)
        half = torch.rand(entries.shape, generator=generator, device="cpu").to(entries.device) < 0.5
        yield torch.where(half, entries, 0)
        yield torch.where(half, 0, entries)


def _like(tensor: Tensor, reals: Tensor) -> Tensor:
    """Reals, pairs where complex, as a tensor of the same shape, dtype and device."""
    values = torch.view_as_complex(reals.reshape(*tensor.shape, 2)) if tensor.is_complex() else reals
    return values.reshape(tensor.shape).to(dtype=tensor.dtype, device=tensor.device)


def _direction(scene: Scene, coordinates: Coordinates, entries: Tensor) -> Direction:
    eps, ends = scene.options.eps, []
    for sign in (1, -1):
        with coordinates.shifted(entries, sign * eps):
            outputs = evaluate(scene.subject, coordinates)
            refuse_change(scene.base.signature, outputs.signature, f"by {eps}")
            ends.append(outputs.values)
    # rounding of the moved entries themselves bends the direction
    size = float(coordinates.entries.abs().nan_to_num(0.0, 0.0, 0.0).max()) if entries.numel() else 0.0
    bend = rounding_of(coordinates.entries) * size / eps
    slopes = difference(*ends) / (2 * eps)
    noise = unit_in_last_place(scene.base) / (2 * eps) + bend * slopes.abs()
    return Direction(entries=entries, columns=flat_reals(entries), slopes=slopes, noise=noise)
