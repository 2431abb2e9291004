"""What a function returns, as the rows of a Jacobian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.compat.failures import refuse, stage
from gradbot.engine.compat.layouts import SPARSE, flat_reals
from gradbot.engine.compat.subject import Subject, as_tuple, is_tensor
from gradbot.phrases import phrase

Signature = tuple[tuple[torch.Size, torch.dtype], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """The outputs of one call.

    `all` are in the order returned. `floating` are the positions of real and complex ones, whose elements are the rows
    of a Jacobian, one output after the other, complex elements as pairs. `differentiable` are those that require grad.
    """

    all: tuple[Tensor, ...]
    floating: tuple[int, ...]
    differentiable: tuple[int, ...]

    @property
    def signature(self) -> Signature:
        """What must not change near the inputs."""
        return tuple((each.shape, each.dtype) for each in self.all)

    @property
    def rows(self) -> dict[int, slice]:
        """Which rows of the Jacobian belong to which floating output."""
        rows, start = {}, 0
        for position in self.floating:
            size = self.all[position].numel() * (2 if self.all[position].is_complex() else 1)
            rows[position] = slice(start, start + size)
            start += size
        return rows

    @property
    def values(self) -> Tensor:
        """All rows as one vector of float64; a copy."""
        return flat([self.all[position] for position in self.floating])


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one after the other as one vector of float64 on the CPU, complex elements as pairs."""
    if len(tensors) == 1:
        return flat_reals(tensors[0])
    return (
        torch.cat([flat_reals(each) for each in tensors])
        if tensors
        else torch.zeros(0, dtype=torch.float64, device="cpu")
    )


def call(subject: Subject, arguments: Sequence[object]) -> Outputs:
    """Calls the function.

    Raises:
        ValueError: an output is not a tensor.
    """
    with stage("forward", subject.order):
        returned = as_tuple(subject.func(*arguments))
    for position, each in enumerate(returned):
        if not is_tensor(each):
            raise refuse(
                ValueError, "non_tensor_output", phrase("non_tensor_output", output=position, type=type(each).__name__)
            )
    tensors: tuple[Tensor, ...] = returned  # type: ignore[assignment]
    return Outputs(
        all=tensors,
        floating=tuple(i for i, each in enumerate(tensors) if each.is_floating_point() or each.is_complex()),
        differentiable=tuple(i for i, each in enumerate(tensors) if each.requires_grad),
    )


def refuse_layouts(outputs: Outputs) -> None:
    """Refuses differentiable outputs that are not strided, with torch's words.

    Raises:
        ValueError: a differentiable output is sparse or mkldnn.
    """
    for position in outputs.differentiable:
        for wrong, kind in (
            (outputs.all[position].layout in SPARSE, "sparse_output"),
            (outputs.all[position].is_mkldnn, "mkldnn_output"),
        ):
            if wrong:
                raise refuse(ValueError, kind, phrase(kind))


def refuse_change(before: Signature, after: Signature, where: str) -> None:
    """Refuses outputs whose number, shapes or dtypes change with the values of the inputs.

    Raises:
        AssertionError: they do.
    """
    if before == after:
        return
    if len(before) != len(after):
        raise _changed("other_number", where, len(before), len(after))
    for (shape, dtype), (other_shape, other_dtype) in zip(before, after, strict=True):
        if shape != other_shape:
            raise _changed("other_shape", where, shape, other_shape)
        if dtype != other_dtype:
            raise _changed("other_dtype", where, dtype, other_dtype)


def _changed(code: str, where: str, before: object, after: object) -> Exception:
    text = phrase(code, where=where, before=before, after=after)
    return refuse(AssertionError, "output_depends_on_perturbation", text)
