"""Compare a problem's analytical Jacobian with its numerical one, by the method that its size asks for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.jacobian.dense import compare_dense
from gradbot.engine.jacobian.form import Limits
from gradbot.engine.jacobian.point import Array, Point, look
from gradbot.engine.jacobian.tolerances import tolerances_of
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings


def compare_jacobians(
    problem: Problem, *, direction: str = "reverse", settings: CheckSettings, seed: int = 0
) -> Comparison:
    """Whether the derivatives that `problem` offers are its derivatives.

    `direction` is "reverse" (vjp) or "forward" (jvp). `settings` gives mode, eps, atol, rtol and the memory budget;
    what is None is chosen by dtype. `seed` draws the probe's directions; the verdict does not depend on it.
    Raises `OutputsChangedError` where the outputs' number or size changes near the inputs, and what user code raises.
    """
    point = look(problem)
    comparison = _compare(point, direction, settings, seed)
    if comparison.verdict is Verdict.AGREE:
        return comparison
    better = _measured_otherwise(point)
    return comparison if better is None else _compare(look(better), direction, settings, seed)


def _compare(point: Point, direction: str, settings: CheckSettings, seed: int) -> Comparison:
    tolerances = tolerances_of(settings, point.unit_roundoff)
    comparison = compare_dense(point, direction, tolerances, np.random.default_rng(seed), Limits())
    assert comparison is not None
    return comparison


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
