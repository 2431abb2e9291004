"""Gradients in float32, float16 and bfloat16: checked as they are, never failed for their rounding.

Where the function accepts float64 it is checked there, and its low-precision gradients are compared with the float64
ones; a declared reference in float64 does the same for functions that do not; else the noise-aware probe decides, or
says that rounding leaves it open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.directional import UNIT_ROUNDOFF
from gradbot.engine.low_precision.against import compare_with_double
from gradbot.engine.low_precision.probe import compare_by_probe
from gradbot.engine.low_precision.upcast import prepared_in_double
from gradbot.engine.problem import Problem
from gradbot.engine.subject import Subject
from gradbot.model import CheckSettings

__all__ = ["Examined", "arithmetic", "compare", "examine"]


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
    double = prepared_in_double(subject, seed=seed)
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


def arithmetic(problem: Problem) -> torch.dtype:
    """The coarsest dtype of inputs and outputs, or of the arithmetic inside where every output shows it."""
    outputs = problem.evaluate(problem.inputs)
    dtypes = [each.dtype for each in (*problem.inputs, *outputs)]
    coarsest = max(dtypes, key=lambda each: UNIT_ROUNDOFF.get(each, 0.0))
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        if UNIT_ROUNDOFF[dtype] <= UNIT_ROUNDOFF.get(coarsest, 0.0):
            continue
        # Values that happen to lie on a coarse grid are few, or lie on a far coarser one.
        exact = all(torch.equal(each.to(dtype).to(each.dtype), each) for each in outputs)
        coarser = all(torch.equal(_few_bits(each), each) for each in outputs)
        inputs_fine = any(
            not torch.equal(each.detach().to(dtype).to(each.dtype), each.detach()) for each in problem.inputs
        )
        if exact and not coarser and inputs_fine and sum(each.numel() for each in outputs) >= 2:
            return dtype
    return coarsest


def _few_bits(values: torch.Tensor) -> torch.Tensor:
    """Rounded to four significant bits."""
    mantissa, exponent = torch.frexp(values.double())
    return torch.ldexp(torch.round(mantissa * 16) / 16, exponent).to(values.dtype)
