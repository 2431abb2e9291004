"""Compare vᵀAu with vᵀNu along few random directions u and cotangents v, with error bars for every row.

Six evaluations of f and two vjps (or two jvps) see every error that stands out of its row's bar, whatever the size of
the Jacobian. Directions are signed-uniform: constant, positive or ±1 ones miss structured errors. Cotangents are
weighted by 1 / bar so that a noisy row cannot drown the others. A pass counts only with a resolution that is finer
than the tolerances, for every row and every input; what is not resolved is probed again at other steps, then input by
input, and left to the caller where that does not help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradbot.engine.jacobian.bars import Bars, median, row_bars
from gradbot.engine.jacobian.form import signed_uniform
from gradbot.engine.jacobian.forward import push_forward_move
from gradbot.engine.jacobian.point import Array, Point, inner, split
from gradbot.engine.jacobian.reverse import pull_back
from gradbot.engine.jacobian.tolerances import Tolerances

STEP = 2.0**-17
"""Of the first difference, relative to the natural size of each element."""
_NARROWER = (2.0**-21, 2.0**-26)
_WIDER = (2.0**-13, 2.0**-10, 2.0**-9, 2.0**-9, 2.0**-7)
_DIRECTIONS = 2
_COTANGENTS = 2
_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """`agrees`: nothing stands out. `resolution` is the relative error that would have been seen, in the median.

    `covered` are rows that were resolved finely enough, `inputs` likewise.
    """

    agrees: bool
    resolution: float
    covered: NDArray[np.bool_]
    inputs: NDArray[np.bool_]

    @property
    def complete(self) -> bool:
        """Agreement that covers every row and every input."""
        return self.agrees and bool(self.covered.all() and self.inputs.all())


def probe(point: Point, direction: str, tolerances: Tolerances, generator: np.random.Generator) -> Probed:
    """The whole Jacobian at once, at other steps where needed, then input by input."""
    joint = _over_steps(point, direction, tolerances, generator, None)
    if not joint.agrees or not joint.covered.all():
        return joint
    inputs, resolution = joint.inputs.copy(), joint.resolution
    for index in np.flatnonzero(~inputs):
        single = _over_steps(point, direction, tolerances, generator, int(index))
        if not single.agrees:
            return single
        inputs[index] = bool(single.covered.all())
        resolution = max(resolution, single.resolution)
    return Probed(agrees=True, resolution=resolution, covered=joint.covered, inputs=inputs)


def _over_steps(
    point: Point, direction: str, tolerances: Tolerances, generator: np.random.Generator, only: int | None
) -> Probed:
    """Until every row is covered. A step may cross a kink: agreement at another one, over all rows, outweighs that."""
    first = _at_step(point, direction, tolerances, generator, STEP, only)
    if first.agrees and first.covered.all():
        return first
    covered, inputs = first.covered & first.agrees, first.inputs & first.agrees
    resolution, disputed = first.resolution if covered.any() else 0.0, not first.agrees
    # a wider step crosses the same kinks; noise is in the bars already
    for step in _NARROWER if disputed else (*_WIDER, *_NARROWER):
        again = _at_step(point, direction, tolerances, generator, step, only)
        if not again.agrees:
            disputed = True
            continue
        if again.covered.all():
            return again
        covered |= again.covered
        inputs |= again.inputs
        if again.covered.any():
            resolution = max(resolution, again.resolution)
        if covered.all() and not disputed:
            break
    return Probed(agrees=not disputed, resolution=resolution, covered=covered, inputs=inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Differences:
    """Along each direction: by how much f changed, (directions, rows), and the inputs moved, (directions, columns)."""

    values: Array
    moves: Array
    bars: Bars


def _at_step(
    point: Point,
    direction: str,
    tolerances: Tolerances,
    generator: np.random.Generator,
    step: float,
    only: int | None,
) -> Probed:
    with np.errstate(all="ignore"):
        differences = _measure(point, generator, step, only)
        if direction == "forward":
            return _compare_tangents(point, tolerances, differences, only)
        return _compare_cotangents(point, tolerances, generator, differences, only)


def _measure(point: Point, generator: np.random.Generator, step: float, only: int | None) -> _Differences:
    scale = natural_scale(point, only)
    values = np.empty((_DIRECTIONS, point.value.size))
    moves = np.empty((_DIRECTIONS, point.position.size))
    fourth = third = np.empty(0)
    for index in range(_DIRECTIONS):
        move = signed_uniform(generator, point.position.size)
        move *= scale
        move *= step
        ahead, behind = point.position + move, point.position - move
        moves[index] = np.nan_to_num(ahead - behind, nan=0.0)  # an infinite element stays where it is
        forward, backward = point.values_at(ahead), point.values_at(behind)
        np.subtract(forward, backward, out=values[index])
        if index == 0:
            far, far_back = point.values_at(point.position + 2 * move), point.values_at(point.position - 2 * move)
            fourth = far + far_back
            fourth -= 4 * (forward + backward)
            fourth += 6 * point.value
            third = far - far_back
            third -= 2 * values[0]
            third /= 6
    return _Differences(values=values, moves=moves, bars=row_bars(point, step, values, fourth, third))


def natural_scale(point: Point, only: int | None = None) -> Array:
    """The natural step of each element, max(|x|, rms(x)); zero in the inputs that stay where they are."""
    parts = []
    for index, part in enumerate(split(point.position, point.input_sizes)):
        if only is not None and index != only:
            parts.append(np.zeros_like(part))
            continue
        size = math.sqrt(inner(part, part) / part.size) if part.size else 1.0
        size = size if 0 < size < math.inf else 1.0
        scale = np.abs(part)
        parts.append(np.where(np.isfinite(scale), np.maximum(scale, size), size))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def wanted_share(tolerances: Tolerances) -> float:
    """The relative resolution that is asked for."""
    return min(0.02, max(0.25 * tolerances.rtol, 1e-5))


def covered_rows(tolerances: Tolerances, bars: Bars, moves: Array) -> NDArray[np.bool_]:
    """Rows whose bar is fine against their own signal, or against what `atol` allows in one entry."""
    fine = bars.bar <= np.maximum(wanted_share(tolerances) * bars.signal, tolerances.atol * _typical(moves))
    covered: NDArray[np.bool_] = fine & bars.finite
    return covered


def _typical(moves: Array) -> float:
    """The mean size of the moves that were made."""
    made = moves[moves != 0]
    return float(np.abs(made).mean()) if made.size else 0.0


def _compare_cotangents(
    point: Point,
    tolerances: Tolerances,
    generator: np.random.Generator,
    differences: _Differences,
    only: int | None,
) -> Probed:
    bars, moves = differences.bars, differences.moves
    covered = covered_rows(tolerances, bars, moves)
    weight = np.where(bars.finite, 1 / bars.bar, 0.0)
    if bars.finite.any():
        # around one, as cotangents are in use: a backward that clips or cuts then shows it
        typical_weight = median(weight[bars.finite])
        weight = np.where(bars.finite, np.clip(weight / typical_weight, 1e-12, 1e12), 0.0)
    values = differences.values if bars.finite.all() else np.where(bars.finite, differences.values, 0.0)
    share, typical = wanted_share(tolerances), _typical(moves)
    agrees, resolutions = True, []
    inputs = np.ones(len(point.input_sizes), dtype=np.bool_)
    first = signed_uniform(generator, weight.size)
    for index in range(_COTANGENTS + 1):
        weighted = index < _COTANGENTS
        # either sign of each element: a backward that is linear for one of them only shows so
        cotangent = signed_uniform(generator, weight.size) if index == 1 else first.copy()
        if not weighted:
            cotangent = -np.copysign(generator.random(weight.size) + 0.5, first)
        # one of usual magnitudes everywhere shows a backward that is linear only for small cotangents
        cotangent *= weight if weighted else bars.finite
        terms = pull_back(point, cotangent) * moves
        analytical = terms.sum(1)
        numerical = np.einsum("ij,j->i", values, cotangent)
        bar = math.sqrt(float(np.square(cotangent * bars.bar).sum()))
        size = np.sqrt(np.square(terms).sum(1))
        signal = np.maximum(size, np.sqrt(np.square(values * cotangent).sum(1)))
        total = bar + 24 * point.unit_roundoff * size + 1e-7 * signal + _TINY
        agrees = agrees and bool((np.abs(analytical - numerical) <= total).all())
        if not weighted:
            continue
        allowed = math.sqrt(inner(cotangent, cotangent)) * tolerances.atol
        resolutions.append(total / (np.maximum(signal, allowed * typical / share) + _TINY))
        inputs &= resolved_inputs(point, terms, moves, total, share, allowed, only)
    resolution = median(np.concatenate(resolutions)) if point.value.size else 0.0
    if resolution > share:
        covered &= False
    return Probed(agrees=agrees, resolution=resolution, covered=covered, inputs=inputs)


def resolved_inputs(
    point: Point, terms: Array, moves: Array, total: Array, share: float, allowed: float, only: int | None
) -> NDArray[np.bool_]:
    """Inputs whose own contribution, or what `atol` allows of it, stands out of the bar of all together."""
    sizes = point.input_sizes
    if len(sizes) == 1 or only is not None:
        return np.ones(len(sizes), dtype=np.bool_)
    resolved = np.empty(len(sizes), dtype=np.bool_)
    for index, (part, moved) in enumerate(zip(split(terms, sizes), split(moves, sizes), strict=True)):
        own = np.sqrt(np.square(part).sum(1))
        typical = np.abs(moved).mean(1) if moved.shape[1] else np.full(len(moved), np.inf)
        resolved[index] = bool((total <= np.maximum(share * own, allowed * typical)).all())
    return resolved


def _compare_tangents(point: Point, tolerances: Tolerances, differences: _Differences, only: int | None) -> Probed:
    bars, moves = differences.bars, differences.moves
    agrees = True
    for values, move in zip(differences.values, moves, strict=True):
        error = np.abs(push_forward_move(point, move) - values)
        agrees = agrees and bool((~bars.finite | (error <= bars.bar)).all())
    usable = bars.finite & (bars.signal > 0)
    resolution = median(bars.bar[usable] / bars.signal[usable]) if usable.any() else 0.0
    inputs = np.ones(len(point.input_sizes), dtype=np.bool_)
    if only is None and len(inputs) > 1:
        for index, part in enumerate(split(moves, point.input_sizes)):
            typical = float(np.abs(part).mean()) if part.size else math.inf
            inputs[index] = bool((bars.bar <= tolerances.atol * typical).all())
    return Probed(agrees=agrees, resolution=resolution, covered=covered_rows(tolerances, bars, moves), inputs=inputs)
