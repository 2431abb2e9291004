"""A problem looked at once: its graph, its value, and how its tensors lie in the rows and columns of one matrix."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.problem import Linearization, Problem

UNIT_ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}


class OutputsChanged(Exception):
    """The number or size of the outputs is another one near the inputs than at the inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """`value` is f at the inputs and `position` the inputs, flat, in float64 on the CPU."""

    problem: Problem
    linearization: Linearization
    value: Tensor
    position: Tensor
    input_sizes: tuple[int, ...]
    output_sizes: tuple[int, ...]
    unit_roundoff: float

    @property
    def entries(self) -> int:
        """The number of entries of the Jacobian."""
        return sum(self.input_sizes) * sum(self.output_sizes)

    @property
    def input_offsets(self) -> tuple[int, ...]:
        """The first column of each input, and the number of columns."""
        return tuple(itertools.accumulate(self.input_sizes, initial=0))

    @property
    def output_offsets(self) -> tuple[int, ...]:
        """The first row of each output, and the number of rows."""
        return tuple(itertools.accumulate(self.output_sizes, initial=0))

    def values_at(self, inputs: Sequence[Tensor]) -> Tensor:
        """f at `inputs`, flat, in float64 on the CPU. Raises `OutputsChanged`."""
        outputs = self.problem.evaluate(inputs)
        if len(outputs) != len(self.output_sizes):
            raise OutputsChanged(f"{len(self.output_sizes)} outputs at the inputs, {len(outputs)} a step away")
        flat = flatten(outputs)
        if flat.numel() != self.value.numel():
            raise OutputsChanged(f"{self.value.numel()} output elements at the inputs, {flat.numel()} a step away")
        return flat


def look(problem: Problem) -> Point:
    """The problem at its inputs."""
    linearization = problem.linearize()
    tensors = (*problem.inputs, *linearization.outputs)
    return Point(
        problem=problem,
        linearization=linearization,
        value=flatten([each.detach() for each in linearization.outputs]),
        position=flatten([each.detach() for each in problem.inputs]),
        input_sizes=tuple(each.numel() for each in problem.inputs),
        output_sizes=tuple(each.numel() for each in linearization.outputs),
        unit_roundoff=max((UNIT_ROUNDOFF.get(each.dtype, 2.0**-53) for each in tensors), default=2.0**-53),
    )


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All elements one after the other, float64 on the CPU, in memory that later changes of `tensors` may share."""
    if len(tensors) == 1:
        return tensors[0].reshape(-1).to(dtype=torch.float64, device="cpu")
    flat = [each.reshape(-1).to(dtype=torch.float64, device="cpu") for each in tensors]
    return torch.cat(flat) if flat else torch.empty(0, dtype=torch.float64)
