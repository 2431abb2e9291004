"""What a function returns, as the rows of a Jacobian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.compat.failures import refuse, stage
from gradbot.engine.compat.layouts import SPARSE, flat_reals
from gradbot.engine.compat.subject import Subject, as_tuple, is_tensor

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
    return torch.cat([flat_reals(each) for each in tensors]) if tensors else torch.zeros(0, dtype=torch.float64)


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
                ValueError,
                "non_tensor_output",
                f"gradcheck expects `func` to return tensors, but output {position} is a {type(each).__name__}. "
                "Return a tensor or a tuple of tensors.",
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
        for wrong, kind, name in (
            (outputs.all[position].layout in SPARSE, "sparse_output", "Sparse"),
            (outputs.all[position].is_mkldnn, "mkldnn_output", "MKLDNN"),
        ):
            if wrong:
                raise refuse(
                    ValueError,
                    kind,
                    f"{name} output is not supported at gradcheck yet. "
                    "Please call to_dense(masked_grad=...) on the output of fn for gradcheck.",
                )


def refuse_change(before: Signature, after: Signature, where: str) -> None:
    """Refuses outputs whose number, shapes or dtypes change with the values of the inputs.

    Raises:
        AssertionError: they do.
    """
    if before == after:
        return
    if len(before) != len(after):
        what = f"number of outputs when inputs are perturbed {where}, but got: {len(before)} and {len(after)} outputs."
        raise refuse(AssertionError, "output_depends_on_perturbation", f"Expected `func` to return the same {what}")
    for (shape, dtype), (other_shape, other_dtype) in zip(before, after, strict=True):
        if shape != other_shape:
            raise refuse(
                AssertionError,
                "output_depends_on_perturbation",
                f"Expected `func` to return outputs with the same shape when inputs are perturbed {where}, "
                f"but got: shapes {shape} and {other_shape}.",
            )
        if dtype != other_dtype:
            raise refuse(
                AssertionError,
                "output_depends_on_perturbation",
                f"Expected `func` to return outputs with the same dtype when inputs are perturbed {where}, "
                f"but got: dtypes {dtype} and {other_dtype}.",
            )
