"""In which dtype a function really computes, as its values show."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradbot.engine.directional import UNIT_ROUNDOFF
from gradbot.engine.problem import Problem

OFF_GRID = 2.0**-30
"""A relative move that takes float64 numbers off the grid of every lower precision, and is lost in those."""


def arithmetic(problem: Problem) -> torch.dtype:
    """The coarsest dtype of inputs and outputs, or of the arithmetic inside where every output shows it."""
    inputs = [_off_grid(each.detach()) for each in problem.inputs]
    outputs = problem.evaluate(inputs)
    coarsest = max((each.dtype for each in (*inputs, *outputs)), key=lambda each: UNIT_ROUNDOFF.get(each, 0.0))
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        if UNIT_ROUNDOFF[dtype] <= UNIT_ROUNDOFF.get(coarsest, 0.0):
            continue
        # Values that happen to lie on a coarse grid are few, or lie on a far coarser one.
        exact = all(torch.equal(each.to(dtype).to(each.dtype), each) for each in outputs)
        coarser = all(torch.equal(_few_bits(each), each) for each in outputs)
        fine = any(not torch.equal(each.to(dtype).to(each.dtype), each) for each in inputs)
        if exact and fine and not coarser and sum(each.numel() for each in outputs) >= 2 and _varies(problem, dtype):
            return dtype
    return coarsest


def _varies(problem: Problem, dtype: torch.dtype) -> bool:
    """Whether the outputs move with the inputs as smooth ones do.

    Those of a function of few values, as rounding is, lie on the grid of any dtype. They stay where they are under
    small steps, and, where the dtype is too coarse for steps to be small, lie on an even grid as floats do not.
    """
    here = problem.evaluate([_off_grid(each.detach()) for each in problem.inputs])
    there = problem.evaluate([_off_grid(each.detach(), 64 * UNIT_ROUNDOFF[dtype]) for each in problem.inputs])
    moved = sum(int((a != b).sum()) for a, b in zip(here, there, strict=True))
    if 2 * moved <= sum(each.numel() for each in here):
        return False
    return dtype is torch.float32 or not all(_even(each, dtype) for each in here)


def _even(values: Tensor, dtype: torch.dtype) -> bool:
    """Whether all values are multiples of the spacing that the dtype has at the largest of them."""
    largest = float(values.abs().nan_to_num(0.0, 0.0).max()) if values.numel() else 0.0
    if largest == 0:
        return True
    spacing = 2.0 ** math.floor(math.log2(largest)) * 2 * UNIT_ROUNDOFF[dtype]
    return bool(torch.equal(torch.round(values / spacing) * spacing, values))


def _off_grid(values: Tensor, step: float = OFF_GRID) -> Tensor:
    pattern = torch.arange(1, values.numel() + 1, device=values.device).view(values.shape)
    return values * (1 + step * (pattern % 7 + 1).to(values.dtype))


def _few_bits(values: Tensor) -> Tensor:
    """Rounded to four significant bits."""
    mantissa, exponent = torch.frexp(values.double())
    return torch.ldexp(torch.round(mantissa * 16) / 16, exponent).to(values.dtype)
