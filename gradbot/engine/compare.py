"""Compare a problem's analytical Jacobian with its numerical one, by the method that its size asks for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.jacobian.chunked import compare_chunked, evaluations
from gradbot.engine.jacobian.dense import compare_dense
from gradbot.engine.jacobian.descend import compare_by_descent
from gradbot.engine.jacobian.form import Limits
from gradbot.engine.jacobian.forward import push_forward
from gradbot.engine.jacobian.linearity import is_linear
from gradbot.engine.jacobian.point import Array, Point, look
from gradbot.engine.jacobian.probe import Probed, probe
from gradbot.engine.jacobian.reverse import pull_back
from gradbot.engine.jacobian.short_probe import Sight, short_probe
from gradbot.engine.jacobian.structured import compare_structured
from gradbot.engine.jacobian.tolerances import Tolerances, tolerances_of
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings, Mode

_DOUBLE = 2.0**-53
_TINY, _SMALL, _MEDIUM, _LARGE = 16, 1 << 10, 1 << 14, 1 << 20
"""Numbers of Jacobian entries: up to the first `fast` forms them all, up to the second `auto`, up to the third
`exact` without looking for structure; up to the last anything may be formed in full at all."""
_SHORT_LOOP, _LONG_LOOP, _EXHAUSTIVE = 24, 1 << 14, 1 << 19
"""Numbers of evaluations: cheaper than a probe; worth it to settle what a probe leaves open; worth it when asked."""
_MANY_PROBES = 16


def compare_jacobians(
    problem: Problem, *, direction: str = "reverse", settings: CheckSettings, seed: int = 0
) -> Comparison:
    """Whether the derivatives that `problem` offers are its derivatives.

    `direction` is "reverse" (vjp) or "forward" (jvp). `settings` gives mode, eps, atol, rtol and the memory budget;
    what is None is chosen by dtype. `seed` draws the probe's directions; the verdict does not depend on it.
    Raises `OutputsChangedError` where the outputs' number or size changes near the inputs, and what user code raises.
    """
    return compare_at(look(problem), direction=direction, settings=settings, seed=seed)


def compare_at(point: Point, *, direction: str = "reverse", settings: CheckSettings, seed: int = 0) -> Comparison:
    """As `compare_jacobians`, of a problem that was looked at already."""
    comparison = _compare(point, direction, settings, seed)
    if comparison.verdict is Verdict.AGREE:
        return comparison
    better = _measured_otherwise(point)
    return comparison if better is None else _compare(look(better), direction, settings, seed)


def _compare(point: Point, direction: str, settings: CheckSettings, seed: int) -> Comparison:
    tolerances = tolerances_of(settings, point.unit_roundoff)
    generator = np.random.default_rng(seed)
    if not point.entries:
        return _without_entries(point, direction)
    # the probe's bars are those of float64; lower precision is compared entry by entry
    if settings.mode is Mode.EXACT or point.unit_roundoff > _DOUBLE:
        return _exact(point, direction, tolerances, generator, settings.memory_bytes)
    small = point.entries <= (_SMALL if settings.mode is Mode.AUTO else _TINY)
    seen = short_probe(point, direction, tolerances, generator)
    # an eps that was asked for is the step of every entry
    if seen.sight is Sight.CLEAR and (not small or (seen.entries and settings.eps is None)):
        return Comparison(verdict=Verdict.AGREE, method="probe", resolution=seen.resolution, coverage=1.0)
    comparison = _fast_first(point, direction, tolerances, generator, settings.memory_bytes, small)
    if comparison.verdict is Verdict.AGREE and seen.sight is Sight.DISPUTED:
        return _linear_too(comparison, point, direction, tolerances, generator)
    return comparison


def _without_entries(point: Point, direction: str) -> Comparison:
    """Nothing to compare; the derivative is asked for all the same, so that what it raises is seen."""
    if direction == "forward":
        push_forward(point, point.position)
    else:
        pull_back(point, point.value)
    return Comparison(verdict=Verdict.AGREE, method="dense", coverage=1.0)


def _fast_first(
    point: Point, direction: str, tolerances: Tolerances, generator: np.random.Generator, budget: int, small: bool
) -> Comparison:
    """Small Jacobians in full, larger ones by a probe, and in full where it sees an error or not enough."""
    if small:
        dense = compare_dense(point, direction, tolerances, generator, Limits(loop=_SHORT_LOOP))
        if dense is not None:
            return dense
    probed = probe(point, direction, tolerances, generator)
    if probed.complete:
        return Comparison(verdict=Verdict.AGREE, method="probe", resolution=probed.resolution, coverage=1.0)
    return _unsettled(point, direction, tolerances, generator, budget, probed)


def _unsettled(
    point: Point,
    direction: str,
    tolerances: Tolerances,
    generator: np.random.Generator,
    budget: int,
    probed: Probed,
) -> Comparison:
    """Entry by entry, by the first method that can afford it, as a probe has seen an error or not enough."""
    if _fits(point, budget):
        dense = compare_dense(point, direction, tolerances, generator, Limits(loop=_LONG_LOOP))
        if dense is not None:
            return dense
    if not probed.agrees and not is_linear(point, direction, generator, tolerances):
        # no entry of a matrix explains it, so none is looked for
        return _nonlinear(Comparison(verdict=Verdict.DIFFER, method="probe", resolution=probed.resolution), point)
    nearest = None
    if not probed.agrees:
        nearest = compare_by_descent(point, direction, tolerances, generator)
        if nearest.verdict is Verdict.DIFFER:
            return nearest
    settled = compare_structured(point, direction, tolerances, generator, budget)
    if settled is None and evaluations(point, direction, budget) <= _LONG_LOOP:
        settled = compare_chunked(point, direction, tolerances, budget)
    settled = settled or nearest
    if settled is not None:
        return _linear_too(settled, point, direction, tolerances, generator)
    return Comparison(
        verdict=Verdict.UNSURE,
        method="probe",
        resolution=probed.resolution,
        coverage=float(probed.covered.mean()),
        reason="precision",
    )


def _linear_too(
    comparison: Comparison, point: Point, direction: str, tolerances: Tolerances, generator: np.random.Generator
) -> Comparison:
    """Agreement along unit vectors, if it holds for others as well; where not, every pair may be wrong."""
    if comparison.verdict is Verdict.DIFFER or is_linear(point, direction, generator, tolerances):
        return comparison
    return _nonlinear(comparison, point)


def _nonlinear(comparison: Comparison, point: Point) -> Comparison:
    pairs = tuple((output, each) for output in range(len(point.output_sizes)) for each in range(len(point.input_sizes)))
    return replace(comparison, verdict=Verdict.DIFFER, reason="", wrong_pairs=pairs, linear=False)


def _exact(
    point: Point, direction: str, tolerances: Tolerances, generator: np.random.Generator, budget: int
) -> Comparison:
    """Every entry: in full, structured or in chunks; only where that would take too long, many probes."""
    if point.entries <= _MEDIUM and _fits(point, budget):
        dense = compare_dense(point, direction, tolerances, generator, Limits())
        if dense is not None:
            return dense
    settled = compare_structured(point, direction, tolerances, generator, budget)
    if settled is None and evaluations(point, direction, budget) <= _EXHAUSTIVE:
        settled = compare_chunked(point, direction, tolerances, budget)
    if settled is not None:
        if settled.verdict is not Verdict.DIFFER and not probe(point, direction, tolerances, generator).agrees:
            nearest = compare_by_descent(point, direction, tolerances, generator)
            settled = nearest if nearest.verdict is Verdict.DIFFER else settled
        return _linear_too(settled, point, direction, tolerances, generator)
    for _ in range(_MANY_PROBES):
        probed = probe(point, direction, tolerances, generator)
        if not probed.complete:
            return _unsettled(point, direction, tolerances, generator, budget, probed)
    return Comparison(verdict=Verdict.AGREE, method="many probes", resolution=probed.resolution, coverage=1.0)


def _fits(point: Point, budget: int) -> bool:
    """Whether full Jacobians can be formed and shown within the budget."""
    return point.entries <= _LARGE and point.entries * 8 * 12 <= budget


def _measured_otherwise(point: Point) -> Problem | None:
    """The problem with steps taken the way it needs them, where they were not.

    Some functions return other values without grad mode; some read their inputs by closure, so that only moving them
    in place changes anything.
    """
    problem = point.problem
    if not problem.grad_mode and not _equal(point.values_at(point.position.copy()), point.value):
        return replace(problem, grad_mode=True)
    if not problem.in_place:
        in_place = replace(problem, in_place=True)
        moved = point.position + 2.0**-10 * np.maximum(np.abs(point.position), 1.0)
        if not _equal(point.values_at(moved.copy()), replace(point, problem=in_place).values_at(moved)):
            return in_place
    return None


def _equal(left: Array, right: Array) -> bool:
    return np.array_equal(left, right, equal_nan=True)
