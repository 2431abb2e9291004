"""Low-precision gradients against float64 ones of the same function: errors beyond what rounding can explain.

What rounding explains follows from three measurements: the forward's own error, which carries the dtype and whatever
the op does inside; the size of the terms that a gradient is summed from, sqrt(sum_r (J_rj v_r)^2), estimated with
random signs of v; and how much the float64 gradient moves when the inputs move by their rounding, or, of small ones,
by that of their mean size: what is added to them inside is rounded at that size.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradbot.engine.comparison import Block, Comparison, Verdict
from gradbot.engine.directional import UNIT_ROUNDOFF, Point, flat, problem_at, signed_uniform
from gradbot.engine.problem import Problem

ROUNDINGS, MOVES = 16.0, 6.0
SHARED = 0.4
"""Of the typical size of a gradient: what every element may be off by for values that were rounded before they were
saved, as 1 - tanh² is where tanh is next to one."""
JITTERS = 3
SIGNS = 6
DRAWS = 3
TOLERATED = {2.0**-24: 5e-3, 2.0**-11: 5e-2, 2.0**-8: 0.15}
"""By unit roundoff: relative errors below this are never called wrong in that dtype."""
NEEDED = {2.0**-24: 0.05, 2.0**-11: 0.2, 2.0**-8: 0.4}
"""By unit roundoff: an agreement counts where errors of this size, relative to the terms, would have been seen."""
MOST_BLOCKS, MOST_ENTRIES, MOST_ROWS = 4, 1 << 14, 256
"""Jacobians that are formed to show where low precision is wrong."""
LARGEST_FORWARD_ERROR = 0.1
"""A forward that is this far off says nothing about its gradient."""


def compare_with_double(
    low: Problem, double: Problem, seed: int = 0, *, rtol: float | None = None, atol: float | None = None
) -> Comparison:
    """Whether gradients of `low` are those of `double`, the same function in float64, as far as rounding lets tell.

    `rtol`, relative to the terms that a gradient is summed from, and `atol` are tolerated whatever rounding explains.
    """
    generator = torch.Generator().manual_seed(seed)
    mine = Point.of(low)
    with problem_at(double, [each.detach().to(torch.float64) for each in low.inputs]) as same_inputs:
        theirs = Point.of(same_inputs)
        forward = _forward_error(mine, theirs)
        roundoff = max(mine.unit_roundoff, min(forward, 1.0))
        if forward > LARGEST_FORWARD_ERROR:
            return Comparison(verdict=Verdict.UNSURE, method="float64 comparison", reason="precision")
        votes: dict[tuple[int, int], list[bool | None]] = {}
        resolutions = []
        for output in range(len(mine.sizes)):
            for _ in range(DRAWS):
                cotangent = torch.zeros_like(mine.values)
                rows = mine.rows(output)
                cotangent[rows] = _rounded(
                    signed_uniform(mine.sizes[output], generator), mine.linearization.outputs[output].dtype
                )
                judged = _judge(mine, theirs, same_inputs, cotangent, roundoff, generator, rtol, atol)
                for index, (wrong, resolution) in enumerate(judged):
                    votes.setdefault((output, index), []).append(wrong)
                    resolutions.append(resolution)
        wrong_pairs = tuple(pair for pair, cast in votes.items() if all(vote is True for vote in cast))
        blocks = tuple(_block(mine, theirs, *pair) for pair in wrong_pairs[:MOST_BLOCKS] if _formable(mine, *pair))
    unsure = any(vote is None or vote for cast in votes.values() for vote in cast)
    verdict = Verdict.DIFFER if wrong_pairs else Verdict.UNSURE if unsure else Verdict.AGREE
    return Comparison(
        verdict=verdict,
        method="float64 comparison",
        wrong_pairs=wrong_pairs,
        blocks=blocks,
        resolution=sorted(resolutions)[len(resolutions) // 2] if resolutions else None,
        coverage=1.0,
        reason="precision" if verdict is Verdict.UNSURE else "",
    )


def _formable(mine: Point, output: int, index: int) -> bool:
    return mine.sizes[output] * mine.inputs[index].numel() <= MOST_ENTRIES and mine.sizes[output] <= MOST_ROWS


def _block(mine: Point, theirs: Point, output: int, index: int) -> Block:
    """Both analytical Jacobians, the float64 one in the place of the numerical."""
    rows = range(mine.rows(output).start, mine.rows(output).stop)
    low = torch.stack([mine.row(row)[index] for row in rows])
    exact = torch.stack([theirs.row(row)[index] for row in rows])
    tolerated = TOLERATED.get(mine.unit_roundoff, 5e-3)
    return Block(
        output=output,
        input=index,
        analytical=low,
        numerical=exact,
        error_bar=4 * mine.unit_roundoff * exact.abs(),
        tolerance=tolerated * exact.abs().clamp_min(0.05 * float(exact.abs().nan_to_num(0.0, 0.0).max())),
    )


def _judge(
    mine: Point,
    theirs: Point,
    problem: Problem,
    cotangent: Tensor,
    roundoff: float,
    generator: torch.Generator,
    rtol: float | None,
    atol: float | None,
) -> list[tuple[bool | None, float]]:
    """Per input: wrong, right, or None where rounding leaves it open; and the relative error that would be seen."""
    gradients, exact = mine.vjp(cotangent), theirs.vjp(cotangent)
    terms = [each.square() for each in exact]
    for _ in range(SIGNS):
        signs = torch.randint(0, 2, cotangent.shape, generator=generator) * 2 - 1
        for total, gradient in zip(terms, theirs.vjp(cotangent * signs), strict=True):
            total += gradient.square()
    moved = _jittered_gradients(theirs, problem, cotangent, roundoff, generator)
    tolerated = TOLERATED.get(mine.unit_roundoff, 5e-3) if rtol is None else rtol
    judged: list[tuple[bool | None, float]] = []
    for index, (gradient, truth) in enumerate(zip(gradients, exact, strict=True)):
        if not gradient.numel():
            judged.append((False, 0.0))
            continue
        size = (terms[index] / (SIGNS + 1)).sqrt()
        typical = float(size.nan_to_num(0.0, 0.0).square().mean().sqrt())
        moves = torch.stack([each[index] - truth for each in moved]).abs().amax(0)
        stored = UNIT_ROUNDOFF.get(mine.problem.inputs[index].dtype, roundoff)
        bar = ROUNDINGS * (roundoff * (size + SHARED * typical) + stored * truth.abs()) + MOVES * moves
        smallest = max(_smallest(mine.problem.inputs[index].dtype), atol or 0.0)
        allowed = torch.maximum(bar, tolerated * (size + 0.05 * typical)) + smallest
        gap = (gradient - truth).abs()
        overflow = truth.abs() > torch.finfo(mine.problem.inputs[index].dtype).max
        open_ = ~torch.isfinite(bar) | overflow | (bar > 0.5 * size) & (gap > 0.5 * (size + 0.05 * typical))
        wrong = ~(gap <= allowed) & ~(gradient.isnan() & truth.isnan()) & (gradient != truth)
        resolution = float((allowed.sum() / size.sum()).nan_to_num(math.inf)) if typical else 0.0
        if bool((wrong & ~open_).any()):
            judged.append((True, resolution))
        elif bool((wrong & open_).any()) or resolution > NEEDED.get(mine.unit_roundoff, 0.05):
            judged.append((None, resolution))
        else:
            judged.append((False, resolution))
    return judged


def _jittered_gradients(
    theirs: Point, problem: Problem, cotangent: Tensor, roundoff: float, generator: torch.Generator
) -> list[tuple[Tensor, ...]]:
    found = []
    for _ in range(JITTERS):
        moved = []
        for own, values, scale in zip(problem.inputs, theirs.inputs, theirs.scales, strict=True):
            signs = torch.randint(0, 2, values.shape, generator=generator).double() * 2 - 1
            moved.append((values + signs * roundoff * scale).view(own.shape).to(own.device, own.dtype))
        with problem_at(problem, moved) as beside:
            found.append(Point.of(beside).vjp(cotangent))
    return found


def _forward_error(mine: Point, theirs: Point) -> float:
    """The root mean square error of the outputs relative to their root mean square, the worst output of all."""
    worst = 0.0
    for output in range(len(mine.sizes)):
        rows = mine.rows(output)
        own, other = mine.values[rows], theirs.values[rows]
        finite = torch.isfinite(own) & torch.isfinite(other)
        scale = float(other[finite].square().mean().sqrt()) if bool(finite.any()) else 0.0
        if scale > 0:
            worst = max(worst, float((own - other)[finite].square().mean().sqrt()) / scale)
    return worst


def _rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    return flat(values.to(dtype))


def _smallest(dtype: torch.dtype) -> float:
    """Below this a dtype holds numbers with few digits or none."""
    return float(torch.finfo(dtype).tiny)
