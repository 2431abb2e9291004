"""Where a wrong gradient is shown: at the inputs, or a step beside them where the inputs sit on a kink.

At a kink the difference quotients are means of slopes, and no entry of them is the derivative that the rule should
have given. A rule that is wrong beside the kink as well is shown there, where its error is what it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.directional import REFUSALS, Point, problem_at
from gradbot.engine.kinks import BESIDE, moved_beside
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings

_ATTEMPTS = 3
_STEP = 2.0**-17
_BENT = 0.05

DISTANCE = f"{BESIDE:.0e}"
"""How far beside, relative to the size of the elements, as it is told."""


@contextmanager
def where_it_shows(
    problem: Problem, comparison: Comparison, settings: CheckSettings, seed: int
) -> Iterator[tuple[Problem, Comparison, bool]]:
    """The problem with its comparison, and whether they stand beside the inputs, where the same pairs are wrong."""
    generator = torch.Generator().manual_seed(seed)
    point = Point.of(problem)
    for _ in range(_ATTEMPTS if _is_kink(point, comparison, generator) else 0):
        moved = moved_beside(point, generator)
        if moved is None:
            break
        with problem_at(problem, moved) as beside:
            there = _compared(beside, settings, seed)
            if there is not None and set(comparison.wrong_pairs) <= set(there.wrong_pairs):
                yield beside, replace(there, wrong_pairs=comparison.wrong_pairs), True
                return
    yield problem, comparison, False


def _compared(problem: Problem, settings: CheckSettings, seed: int) -> Comparison | None:
    try:
        comparison = compare_jacobians(problem, settings=settings, seed=seed)
    except Exception:  # noqa: BLE001 - beyond the edge of the domain user code may raise
        return None
    return comparison if comparison.verdict is Verdict.DIFFER else None


def _is_kink(point: Point, comparison: Comparison, generator: torch.Generator) -> bool:
    """Whether one-sided slopes along a random direction differ in a wrong pair."""
    for output, index in comparison.wrong_pairs:
        try:
            ahead, behind = point.slopes(point.direction(generator, only=index), _STEP)
        except REFUSALS:
            return False
        rows = point.rows(output)
        gap, size = (ahead - behind)[rows].abs(), (ahead.abs() + behind.abs())[rows]
        rounding = 64 * point.unit_roundoff * point.values[rows].abs() / _STEP
        if bool((gap > _BENT * (size + float(size.nan_to_num(0.0, 0.0, 0.0).max())) + rounding).any()):
            return True
    return False
