"""Gradients in float32, float16 and bfloat16: checked as they are, never failed for their rounding.

Where the function accepts float64 it is checked there, and its low-precision gradients are compared with the float64
ones; a declared reference in float64 does the same for functions that do not; else the noise-aware probe decides, or
says that rounding leaves it open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.directional import UNIT_ROUNDOFF
from gradbot.engine.low_precision.against import compare_with_double
from gradbot.engine.low_precision.arithmetic import arithmetic
from gradbot.engine.low_precision.probe import compare_by_probe
from gradbot.engine.low_precision.upcast import is_low, prepared_in_double
from gradbot.engine.problem import Problem
from gradbot.engine.subject import Subject
from gradbot.model import CheckSettings

__all__ = ["Examined", "arithmetic", "compare", "examine", "is_low", "prepared_in_double"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A comparison, the problem that it is of (in float64 where it failed there already), and what a mismatch is."""

    comparison: Comparison
    problem: Problem
    kind: str


def examine(
    subject: Subject,
    problem: Problem,
    settings: CheckSettings,
    *,
    reference: Callable[..., Any] | None = None,
    seed: int = 0,
) -> Examined:
    """The backward of a call whose inputs, outputs or arithmetic are of low precision."""
    # float64 copies would not be what the function captures
    double = None if problem.in_place else prepared_in_double(subject, seed=seed)
    if double is not None:
        exact = compare_jacobians(double.problem, settings=settings, seed=seed)
        if exact.verdict is not Verdict.AGREE:
            return Examined(comparison=exact, problem=double.problem, kind="jacobian_mismatch_backward")
    elif reference is not None:
        double = prepared_in_double(subject, reference, seed=seed)
    comparison = compare(problem, settings, double=None if double is None else double.problem, seed=seed)
    right_in_double = double is not None and reference is None
    kind = "low_precision_mismatch" if right_in_double else "jacobian_mismatch_backward"
    return Examined(comparison=comparison, problem=problem, kind=kind)


def compare(
    problem: Problem, settings: CheckSettings | None = None, *, double: Problem | None = None, seed: int = 0
) -> Comparison:
    """Low-precision gradients against those of `double` where there is one, else by the noise-aware probe.

    `settings.rtol` and `settings.atol`, where given, widen what is tolerated against `double`.
    """
    if double is not None:
        chosen = settings or CheckSettings()
        return compare_with_double(problem, double, seed, rtol=chosen.rtol, atol=chosen.atol)
    return compare_by_probe(problem, seed, UNIT_ROUNDOFF.get(arithmetic(problem), None))
