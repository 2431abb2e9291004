"""Errors within the tolerances: worth a note where they are real, and not what a step leaves.

A real error stays as large whatever the step; truncation shrinks with it and rounding grows. And it stays where the
inputs move by their last bits: what the rounding of a backward or a jvp leaves of zero does not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradbot.engine.comparison import Block, Comparison
from gradbot.engine.directional import problem_at
from gradbot.engine.problem import Problem

STEPS = (2.0**-14, 2.0**-17, 2.0**-20)
LAST_BITS = (2.0**-50, -(2.0**-49))


def persistent(problem: Problem, comparison: Comparison, direction: str = "reverse") -> float:
    """The largest relative error of an entry that is the same at three steps; 0.0 where there is none.

    Looks again at the entry of each block whose relative error within the tolerances is largest. Where no block was
    formed the comparison's own figure is taken.
    """
    if not comparison.blocks:
        return comparison.largest_relative_error
    return max((_persistent(problem, each, direction) for each in comparison.blocks), default=0.0)


def _persistent(problem: Problem, block: Block, direction: str) -> float:
    analytical, numerical = _tensor(block.analytical), _tensor(block.numerical)
    error = (analytical - numerical).abs()
    largest = torch.maximum(analytical.abs(), numerical.abs())
    relative = torch.where(
        (error > 2 * _tensor(block.error_bar)) & largest.isfinite(), error / largest, 0.0
    ).nan_to_num()
    if not relative.numel() or not bool((relative > 0).any()):
        return 0.0
    row, column = divmod(int(relative.argmax()), relative.shape[1])
    expected = float(error[row, column])
    for step in STEPS:
        found = abs(float(analytical[row, column]) - _quotient(problem, block, row, column, step))
        if not 0.7 * expected <= found <= 1.5 * expected:
            return 0.0
    for move in LAST_BITS:
        there = _analytical(problem, block, row, column, move, direction)
        if not abs(there - float(analytical[row, column])) <= 0.3 * expected:
            return 0.0
    return float(relative[row, column])


def _analytical(problem: Problem, block: Block, row: int, column: int, move: float, direction: str) -> float:
    """One entry at inputs that are moved by so small a part of themselves, up and down in turns."""
    moved = []
    for each in problem.inputs:
        signs = 1 - 2 * (torch.arange(each.numel(), device=each.device).view(each.shape) % 2)
        moved.append(each.detach() * (1 + move * signs.to(each.dtype)))
    with problem_at(problem, moved) as beside:
        if direction == "forward":
            tangents = [torch.zeros_like(each, memory_format=torch.contiguous_format) for each in beside.inputs]
            tangents[block.input].view(-1)[column] = 1
            return float(beside.jvp(tangents)[block.output].reshape(-1)[row])
        linear = beside.linearize()
        cotangents = [torch.zeros_like(each, memory_format=torch.contiguous_format) for each in linear.outputs]
        cotangents[block.output].view(-1)[row] = 1
        gradient = linear.vjp(cotangents)[block.input]
        return 0.0 if gradient is None else float(gradient.reshape(-1)[column])


def _quotient(problem: Problem, block: Block, row: int, column: int, step: float) -> float:
    inputs = [each.detach() for each in problem.inputs]
    length = step * max(1.0, float(inputs[block.input].reshape(-1)[column].abs()))
    values = []
    for sign in (1.0, -1.0):
        moved = inputs[block.input].clone(memory_format=torch.contiguous_format)
        moved.view(-1)[column] += sign * length
        outputs = problem.evaluate([moved if k == block.input else each for k, each in enumerate(inputs)])
        values.append(float(outputs[block.output].reshape(-1)[row].double()))
    return (values[0] - values[1]) / (2 * length)


def _tensor(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)
