"""In which dtype a function really computes, as its values show."""

from __future__ import annotations

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
        if exact and fine and not coarser and sum(each.numel() for each in outputs) >= 2:
            return dtype
    return coarsest


def _off_grid(values: Tensor) -> Tensor:
    pattern = torch.arange(1, values.numel() + 1, device=values.device).view(values.shape)
    return values * (1 + OFF_GRID * (pattern % 7 + 1).to(values.dtype))


def _few_bits(values: Tensor) -> Tensor:
    """Rounded to four significant bits."""
    mantissa, exponent = torch.frexp(values.double())
    return torch.ldexp(torch.round(mantissa * 16) / 16, exponent).to(values.dtype)
