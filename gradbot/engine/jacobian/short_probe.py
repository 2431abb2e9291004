"""The first look: one direction, or two, and two cotangents, with bars of rounding alone.

A probe measures noise and truncation before it says what it resolves, which takes as many evaluations again. Where
vᵀAu and vᵀNu agree within rounding alone there is nothing left to measure: noise or truncation would only have widened
the bars. Where they do not, nothing is said: that is for methods that know their noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from gradbot.engine.jacobian.bars import ROUNDING_SHARE, Bars, median
from gradbot.engine.jacobian.form import signed_uniform
from gradbot.engine.jacobian.forward import push_forward_move
from gradbot.engine.jacobian.point import Array, Point, inner, split
from gradbot.engine.jacobian.probe import STEP, covered_rows, natural_scale, resolved_inputs, wanted_share
from gradbot.engine.jacobian.reverse import pull_back
from gradbot.engine.jacobian.tolerances import Tolerances

_NO_DOUBT = 1e-9
"""Agreement to so small a share of the signal along one direction cannot be chance; a second one is asked otherwise."""
_NOISE = 6 * math.sqrt(2) * 0.6
"""Times the unit roundoff and the value: a difference's rounding, as the probe's bars have it."""
_BENT = 0.01
_NARROW = 2.0**-8
_LARGE = 16.0
_ALIKE = 16.0
"""Bars within such a factor need no weights."""
_TINY = 1e-300


class Sight(Enum):
    """What a first look shows.

    `CLEAR`: agreement of every row and every input far within the tolerances. `DISPUTED`: something is larger than
    rounding, be it an error, noise, a kink or curvature. `DIM`: agreement that does not reach every row or input.
    """

    CLEAR = "clear"
    DISPUTED = "disputed"
    DIM = "dim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`resolution` is the relative error that would have been seen; `entries` says whether a single entry that is
    wrong by more than `atol` would have been."""

    sight: Sight
    resolution: float = math.inf
    entries: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """Where to, (columns,), how far that moved the inputs from the other side, and how f changed with it, (rows,).

    `bend` is the sum of f on both sides.
    """

    along: Array
    inputs: Array
    outputs: Array
    bend: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pull:
    """A cotangent, (rows,), its gradient, (columns,), and what rounding and the bars make of it."""

    cotangent: Array
    gradient: Array
    rounding: float
    bar: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """|vᵀAu - vᵀNu|, the bar it was held to, the size of its terms, and the rounding of f in it."""

    error: float
    bar: float
    signal: float
    rounding: float

    @property
    def agrees(self) -> bool:
        """False too where something is not finite."""
        return self.error <= self.bar

    @property
    def beyond_doubt(self) -> bool:
        """Closer than chance or a small error would come."""
        return self.error <= _NO_DOUBT * self.signal + self.rounding


def short_probe(point: Point, direction: str, tolerances: Tolerances, generator: np.random.Generator) -> Seen:
    """Two evaluations of f and two vjps where that leaves no doubt, more evaluations where it does."""
    with np.errstate(all="ignore"):
        scale = natural_scale(point)
        move = _moved(point, generator, scale)
        bars = _rounding(point, move.outputs)
        if not bars.finite.all():
            return Seen(sight=Sight.DISPUTED)
        if direction == "forward":
            if _bent(point, move):
                return Seen(sight=Sight.DISPUTED)
            other = _moved(point, generator, scale)
            return _compare_tangents(point, tolerances, [move, other], bars)
        pulls = _pulls(point, generator, bars)
        if not _bent(point, move):
            move, tests = _tested(point, generator, scale, move, pulls)
            if all(each.agrees for each in tests):
                return _agreement(point, tolerances, move, bars, pulls, tests)
        return _close_by(point, tolerances, move, pulls)


def _tested(
    point: Point, generator: np.random.Generator, scale: Array, move: _Move, pulls: list[_Pull]
) -> tuple[_Move, list[_Test]]:
    """Tests along a direction; with a smaller truncation error, and along another direction, where they leave doubt."""
    tests = [_test(point, move, each) for each in pulls]
    if not all(each.beyond_doubt for each in tests):
        move = _extrapolated(point, move)
        tests = [_test(point, move, each) for each in pulls]
    if all(each.agrees for each in tests) and not all(each.beyond_doubt for each in tests):
        other = _extrapolated(point, _moved(point, generator, scale))
        tests += [_test(point, other, each) for each in pulls]
    return move, tests


def _close_by(point: Point, tolerances: Tolerances, move: _Move, pulls: list[_Pull]) -> Seen:
    """A kink close by, as between elements of a sorted row, lies outside of a far narrower step."""
    move = _move(point, move.along * _NARROW)
    bars = _rounding(point, move.outputs)
    if not bars.finite.all() or _bent(point, move):
        return Seen(sight=Sight.DISPUTED)
    pulls = [replace(each, bar=_norm(each.cotangent * bars.bar)) for each in pulls]
    tests = [_test(point, move, each) for each in pulls]
    if not all(each.agrees and each.beyond_doubt for each in tests):
        return Seen(sight=Sight.DISPUTED)
    return _agreement(point, tolerances, move, bars, pulls, tests)


def _moved(point: Point, generator: np.random.Generator, scale: Array) -> _Move:
    along = signed_uniform(generator, scale.size)
    along *= scale
    along *= STEP
    return _move(point, along)


def _extrapolated(point: Point, move: _Move) -> _Move:
    """The same move with a truncation error of fourth instead of second order (Richardson's extrapolation)."""
    half = _move(point, move.along / 2)
    return _Move(
        along=move.along,
        inputs=(8 * half.inputs - move.inputs) / 3,
        outputs=(8 * half.outputs - move.outputs) / 3,
        bend=half.bend,
    )


def _move(point: Point, along: Array) -> _Move:
    ahead, behind = point.position + along, point.position - along
    taken = ahead - behind
    change, before = point.values_at(ahead), point.values_at(behind)
    bend = change + before
    change -= before
    return _Move(along=along, inputs=taken, outputs=change, bend=bend)


def _bent(point: Point, move: _Move) -> bool:
    """Whether the function leaves its tangent faster than a smooth one does: where it jumps at the inputs and nowhere
    else, every difference across them agrees with a gradient of zeros."""
    bend = _norm(move.bend - 2 * point.value)
    return not bend <= _BENT * (_norm(move.outputs) + STEP * _norm(point.value))


def _rounding(point: Point, change: Array) -> Bars:
    signal = np.abs(change)
    bar = np.abs(point.value)
    bar *= _NOISE * point.unit_roundoff
    bar += ROUNDING_SHARE * signal
    bar += ROUNDING_SHARE * min(STEP, float(signal.max(initial=0.0))) + _TINY
    return Bars(bar=bar, signal=signal, finite=np.isfinite(bar))


def _pulls(point: Point, generator: np.random.Generator, bars: Bars) -> list[_Pull]:
    """The first cotangent lets no row drown the others, the second is of usual magnitudes, as backwards are used.

    There are always two: what only hands on the gradient of the call before shows so. Each element has either sign
    once, and the first is large: a backward that is linear for some cotangents only shows that.
    """
    drawn = signed_uniform(generator, bars.bar.size)
    weight = _LARGE * drawn
    usual = -np.copysign(generator.random(drawn.size) + 0.5, drawn)
    if bars.bar.max() > _ALIKE * bars.bar.min():
        inverse = 1 / bars.bar
        weight *= inverse * (inverse.size / inverse.sum())
    return [_pull(point, bars, weight), _pull(point, bars, usual)]


def _pull(point: Point, bars: Bars, cotangent: Array) -> _Pull:
    return _Pull(
        cotangent=cotangent,
        gradient=pull_back(point, cotangent),
        rounding=_NOISE * point.unit_roundoff * _norm(cotangent * point.value) + _TINY,
        bar=_norm(cotangent * bars.bar),
    )


def _test(point: Point, move: _Move, pull: _Pull) -> _Test:
    size = _norm(pull.gradient * move.inputs)
    signal = max(size, _norm(pull.cotangent * move.outputs))
    return _Test(
        error=abs(inner(pull.gradient, move.inputs) - inner(pull.cotangent, move.outputs)),
        bar=pull.bar + 24 * point.unit_roundoff * size + ROUNDING_SHARE * signal + _TINY,
        signal=signal,
        rounding=pull.rounding,
    )


def _agreement(
    point: Point, tolerances: Tolerances, move: _Move, bars: Bars, pulls: list[_Pull], tests: list[_Test]
) -> Seen:
    """How far agreement reaches: every row, every input, every entry."""
    share, length = wanted_share(tolerances), np.abs(move.inputs)
    typical = float(length.sum()) / length.size if length.size else 0.0
    allowed = _norm(pulls[0].cotangent) * tolerances.atol
    resolution = tests[0].bar / (max(tests[0].signal, allowed * typical / share) + _TINY)
    rows = covered_rows(tolerances, bars, move.inputs)
    clear = resolution <= share and bool(rows.all())
    terms, bar = (pulls[0].gradient * move.inputs)[None], np.array([tests[0].bar])
    clear = clear and bool(resolved_inputs(point, terms, move.inputs[None], bar, share, allowed, None).all())
    usual = pulls[-1].cotangent
    smallest = float(np.abs(usual).min(initial=1.5)) * float(length.min(initial=1.5))
    known = max(each.error for each in tests) + pulls[-1].rounding
    return Seen(
        sight=Sight.CLEAR if clear else Sight.DIM,
        resolution=resolution,
        entries=known <= 0.5 * tolerances.atol * smallest,
    )


def _compare_tangents(point: Point, tolerances: Tolerances, moves: list[_Move], bars: Bars) -> Seen:
    for move, size in zip(moves, (1.0, _LARGE), strict=True):
        pushed = push_forward_move(point, move.inputs, size=size)
        if not (np.abs(pushed - move.outputs) <= bars.bar).all():
            return Seen(sight=Sight.DISPUTED)
    length = np.abs(moves[0].inputs)
    widest, resolved = float(bars.bar.max(initial=0.0)), True
    if len(point.input_sizes) > 1:
        means = [float(part.mean()) for part in split(length, point.input_sizes) if part.size]
        resolved = all(widest <= tolerances.atol * each for each in means)
    usable = bars.signal > 0
    clear = resolved and bool(covered_rows(tolerances, bars, moves[0].inputs).all())
    return Seen(
        sight=Sight.CLEAR if clear else Sight.DIM,
        resolution=median(bars.bar[usable] / bars.signal[usable]) if usable.any() else 0.0,
        entries=widest <= 0.5 * tolerances.atol * float(length.min(initial=1.5)),
    )


def _norm(vector: Array) -> float:
    return math.sqrt(inner(vector, vector))
