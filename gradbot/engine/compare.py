"""Compare a problem's analytical Jacobian with its numerical one, by the method that its size asks for."""

from __future__ import annotations

from dataclasses import replace

import torch

from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.jacobian.dense import Tolerances, compare_dense
from gradbot.engine.jacobian.point import Point, look
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings

_DEFAULTS = {
    2.0**-53: Tolerances(eps=1e-6, atol=1e-5, rtol=1e-3),
    2.0**-24: Tolerances(eps=2.0**-8, atol=1e-3, rtol=1e-2),
    2.0**-11: Tolerances(eps=2.0**-4, atol=2e-2, rtol=5e-2),
    2.0**-8: Tolerances(eps=2.0**-3, atol=1e-1, rtol=1e-1),
}
"""By the unit roundoff of the coarsest dtype among inputs and outputs."""


def compare_jacobians(
    problem: Problem, *, direction: str = "reverse", settings: CheckSettings, seed: int = 0
) -> Comparison:
    """Whether the derivatives that `problem` offers are its derivatives.

    `direction` is "reverse" (vjp) or "forward" (jvp). `settings` gives mode, eps, atol, rtol and the memory budget;
    what is None is chosen by dtype. `seed` draws the probe's directions; the verdict does not depend on it.
    Raises `OutputsChanged` where the outputs' number or size changes near the inputs; what user code raises, it raises.
    """
    point = look(problem)
    comparison = _compare(point, direction, settings, seed)
    if comparison.verdict is Verdict.AGREE:
        return comparison
    better = _measured_otherwise(point)
    return comparison if better is None else _compare(look(better), direction, settings, seed)


def _compare(point: Point, direction: str, settings: CheckSettings, seed: int) -> Comparison:
    return compare_dense(point, direction, tolerances_of(point, settings))


def tolerances_of(point: Point, settings: CheckSettings) -> Tolerances:
    """The settings' tolerances, with defaults by dtype."""
    default = _DEFAULTS[point.unit_roundoff]
    return Tolerances(
        eps=default.eps if settings.eps is None else settings.eps,
        atol=default.atol if settings.atol is None else settings.atol,
        rtol=default.rtol if settings.rtol is None else settings.rtol,
    )


def _measured_otherwise(point: Point) -> Problem | None:
    """The problem with steps taken the way it needs them, where they were not.

    Some functions return other values without grad mode; some read their inputs by closure, so that only moving them
    in place changes anything.
    """
    problem = point.problem
    if not problem.grad_mode:
        plain = point.values_at(problem.inputs)
        if not torch.equal(plain.nan_to_num(), point.value.nan_to_num()):
            return replace(problem, grad_mode=True)
    if not problem.in_place:
        moved = [each.detach() + 2.0**-10 * each.detach().abs().clamp_min(1) for each in problem.inputs]
        in_place = replace(problem, in_place=True)
        passed, captured = point.values_at(moved), replace(point, problem=in_place).values_at(moved)
        if not torch.equal(passed.nan_to_num(), captured.nan_to_num()):
            return in_place
    return None
