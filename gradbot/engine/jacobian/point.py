"""A problem looked at once: its graph, its value, and how its tensors lie in the rows and columns of one matrix.

Everything numerical happens in flat float64 NumPy arrays, which cost a tenth of a small tensor's overhead: a position
is all inputs' elements one after the other, a value all outputs'.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradbot.engine.problem import Linearization, Problem, is_part, twin

Array: TypeAlias = NDArray[np.float64]

UNIT_ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}

_LONG = 1 << 13


class OutputsChangedError(Exception):
    """The number or size of the outputs is another one near the inputs than at the inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """`value` is f at the inputs and `position` the inputs.

    `plain`: all inputs are contiguous float64 on the CPU and fill their memory.
    """

    problem: Problem
    linearization: Linearization
    value: Array
    position: Array
    input_sizes: tuple[int, ...]
    output_sizes: tuple[int, ...]
    unit_roundoff: float
    plain: bool

    @property
    def entries(self) -> int:
        """The number of entries of the Jacobian."""
        return int(self.position.size * self.value.size)

    @property
    def input_offsets(self) -> tuple[int, ...]:
        """The first column of each input, and the number of columns."""
        return tuple(itertools.accumulate(self.input_sizes, initial=0))

    @property
    def output_offsets(self) -> tuple[int, ...]:
        """The first row of each output, and the number of rows."""
        return tuple(itertools.accumulate(self.output_sizes, initial=0))

    @property
    def row_slices(self) -> list[slice]:
        """The rows of each output."""
        return [slice(start, end) for start, end in itertools.pairwise(self.output_offsets)]

    @property
    def column_slices(self) -> list[slice]:
        """The columns of each input."""
        return [slice(start, end) for start, end in itertools.pairwise(self.input_offsets)]

    def pair(self, row: int, column: int) -> tuple[int, int]:
        """The output and the input that an entry belongs to."""
        return bisect.bisect_right(self.output_offsets, row) - 1, bisect.bisect_right(self.input_offsets, column) - 1

    def values_at(self, position: Array) -> Array:
        """f at another position, which must not be used afterwards. Raises `OutputsChangedError`."""
        outputs = self.problem.evaluate(self.inputs_at(position), copy=False)
        values = flatten(outputs)
        if values.size != self.value.size or len(outputs) != len(self.output_sizes):
            raise OutputsChangedError(_changed(self.output_sizes, outputs))
        return values

    def inputs_at(self, position: Array) -> list[Tensor]:
        """The inputs there, with their own dtypes, devices and strides; plain ones share the position's memory
        where it is aligned: kernels for complex numbers may load 16 bytes at a time, and crash elsewhere."""
        if self.plain:
            tensors, start = [], 0
            for size, each in zip(self.input_sizes, self.problem.inputs, strict=True):
                part = position[start : start + size]
                tensors.append(torch.from_numpy(part.copy() if start % 2 else part).view(each.shape))
                start += size
            return tensors
        parts = split(position, self.input_sizes)
        return [
            twin(each).copy_(torch.from_numpy(part).view(each.shape))
            for part, each in zip(parts, self.problem.inputs, strict=True)
        ]

    def stacked_values(self, positions: Array) -> Array:
        """f at many positions at once, (positions, columns) -> (positions, rows). Raises what batching raises."""
        count = len(positions)
        stacks = [
            torch.from_numpy(np.ascontiguousarray(part))
            .view(count, *each.shape)
            .to(dtype=each.dtype, device=each.device)
            for part, each in zip(split(positions, self.input_sizes), self.problem.inputs, strict=True)
        ]
        outputs = self.problem.evaluate_stack(stacks)
        values = [each.reshape(count, -1).to(device="cpu", dtype=torch.float64).numpy(force=True) for each in outputs]
        joined = values[0] if len(values) == 1 else np.concatenate(values, 1)
        if joined.shape[1] != self.value.size:
            raise OutputsChangedError(_changed(self.output_sizes, [each[0] for each in outputs]))
        return joined

    def stored(self, columns: Sequence[int], elements: Array) -> Array:
        """Elements of these columns as they are once stored in their inputs' dtypes."""
        if self.plain:
            return elements
        owners = np.searchsorted(np.asarray(self.input_offsets[1:]), np.asarray(columns), side="right")
        kept = elements.copy()
        for index, each in enumerate(self.problem.inputs):
            mine = owners == index
            kept[mine] = torch.from_numpy(elements[mine]).to(each.dtype).to(torch.float64).numpy()
        return kept


def look(problem: Problem, linearization: Linearization | None = None) -> Point:
    """The problem at its inputs; `linearization` where they were looked at already."""
    linearization = linearization or problem.linearize()
    outputs, inputs = linearization.outputs, problem.inputs
    roundoffs = [UNIT_ROUNDOFF.get(each.dtype, 2.0**-53) for each in (*inputs, *outputs)]
    return Point(
        problem=problem,
        linearization=linearization,
        value=flatten([each.detach() for each in outputs]),
        position=flatten([each.detach() for each in inputs]),
        input_sizes=tuple(each.numel() for each in inputs),
        output_sizes=tuple(each.numel() for each in outputs),
        unit_roundoff=max(roundoffs, default=2.0**-53),
        plain=all(
            each.dtype == torch.float64 and each.device.type == "cpu" and each.is_contiguous() and not is_part(each)
            for each in inputs
        ),
    )


def inner(left: Array, right: Array) -> float:
    """The inner product of two vectors on this thread alone: for long ones BLAS starts others, which then only wait."""
    return float(left @ right) if left.size < _LONG else float(np.einsum("i,i->", left, right))


def flatten(tensors: Sequence[Tensor]) -> Array:
    """All elements of detached tensors, one after the other, in memory of their own."""
    if len(tensors) == 1:
        return _array(tensors[0]).copy()
    return np.concatenate([_array(each) for each in tensors]) if tensors else np.empty(0)


def _array(tensor: Tensor) -> Array:
    if tensor.dtype != torch.float64 or tensor.device.type != "cpu":
        tensor = tensor.to(dtype=torch.float64, device="cpu")
    array: Array = tensor.numpy(force=True).reshape(-1)
    return array


def split(flat: Array, sizes: Sequence[int]) -> list[Array]:
    """The last dimension in parts of these sizes."""
    if len(sizes) == 1:
        return [flat]
    ends = list(itertools.accumulate(sizes))
    return [flat[..., end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _changed(sizes: Sequence[int], outputs: Sequence[Tensor]) -> str:
    there = [each.numel() for each in outputs]
    return f"the outputs have {list(sizes)} elements at the inputs and {there} a step away"
