"""Analytical Jacobians in forward mode: one Jacobian-vector product a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.compat.backward import largest_difference, nondeterministic
from gradbot.engine.compat.failures import failure, finding, refuse, stage
from gradbot.engine.compat.layouts import SPARSE, Coordinates, flat_reals
from gradbot.engine.compat.numerical import columns
from gradbot.engine.compat.options import Options
from gradbot.engine.compat.outputs import Outputs
from gradbot.engine.compat.subject import Subject, as_tuple
from gradbot.phrases import phrase

fwAD: Any = torch.autograd.forward_ad  # noqa: N816 - torch's own name for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Tangents:
    """The tangents of all floating outputs as one vector, rows as in `Outputs`, and which outputs had one at all."""

    rows: Tensor
    present: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardJacobian:
    """One matrix an input, (rows of `Outputs`, real directions of the input), and which outputs had tangents."""

    jacobians: tuple[Tensor, ...]
    present: frozenset[int]


def refuse_layouts(subject: Subject) -> None:
    """Refuses inputs that cannot have a tangent.

    Raises:
        ValueError: a checked input is mkldnn or sparse.
    """
    for position in subject.checked:
        tensor: Tensor = subject.arguments[position]  # type: ignore[assignment]
        if tensor.is_mkldnn:
            raise refuse(ValueError, "mkldnn_forward_ad", phrase("mkldnn_forward_ad"), input=position)
        if tensor.layout in SPARSE:
            raise refuse(ValueError, "sparse_forward_ad", phrase("sparse_forward_ad"), input=position)


def jvp(
    subject: Subject,
    base: Outputs,
    tangents: Mapping[int, Tensor | None],
    options: Options,
    name: str = "jvp",
) -> Tangents:
    """The tangents of the outputs for `tangents` of the arguments at some positions, zero at the other checked ones.

    None stands for an undefined tangent: the argument is then no dual tensor at all. As in torch, duals are made of
    detached inputs with a tangent of zeros that is filled afterwards.
    """
    with fwAD.dual_level():
        duals: dict[int, Tensor] = {}
        arguments = list(subject.arguments)
        for position in subject.checked:
            tensor: Tensor = subject.arguments[position]  # type: ignore[assignment]
            if id(tensor) not in duals:
                duals[id(tensor)] = _dual(tensor, tangents, position)
            elif tangents.get(position) is not None:
                fwAD.unpack_dual(duals[id(tensor)]).tangent.copy_(tangents[position])
            arguments[position] = duals[id(tensor)]
        with stage(name, subject.order):
            returned = as_tuple(subject.func(*arguments))
        return _tangents_of(returned, base, options)


def forward_jacobian(
    subject: Subject, base: Outputs, coordinates: Sequence[Coordinates], options: Options
) -> ForwardJacobian:
    """The Jacobian of all floating outputs, column by column.

    Raises:
        GradcheckError: a tangent is complex where its output is real or the other way round, if that is checked.
    """
    present: frozenset[int] = frozenset()
    jacobians = []
    for position, each in zip(subject.checked, coordinates, strict=True):
        own = columns(each)
        jacobian = torch.zeros(len(base.values), len(own), dtype=torch.float64, device="cpu")
        for number, column in enumerate(own):
            tangent = torch.zeros_like(each.entries)
            tangent[each.index(column.which)].fill_(column.part)
            found = jvp(subject, base, {position: tangent}, options)
            jacobian[:, number] = found.rows
            present |= found.present
        jacobians.append(jacobian)
    return ForwardJacobian(jacobians=tuple(jacobians), present=present)


def refuse_random_jvp(
    subject: Subject, base: Outputs, coordinates: Sequence[Coordinates], options: Options, generator: torch.Generator
) -> None:
    """Computes one jvp along a direction through all inputs three times.

    Raises:
        GradcheckError: they differ by more than `nondet_tol` and more than the last bits.
    """
    tangents = random_tangents(subject, coordinates, generator)
    first = jvp(subject, base, tangents, options).rows
    slack = 4 * torch.finfo(first.dtype).eps * float(first.abs().nan_to_num(0.0, 0.0).max()) if len(first) else 0.0
    for _ in range(2):
        spread = largest_difference(first, jvp(subject, base, tangents, options).rows)
        if spread > max(options.nondet_tol, slack):
            raise nondeterministic(subject, "forward_ad", spread, options, output=None, input=None)


def random_tangents(
    subject: Subject, coordinates: Sequence[Coordinates], generator: torch.Generator
) -> dict[int, Tensor | None]:
    """Signed random tangents of all checked inputs; one tensor passed twice has one tangent."""
    drawn: dict[int, Tensor] = {}
    for each in coordinates:
        if id(each.tensor) not in drawn:
            drawn[id(each.tensor)] = signed_like(each.entries, generator)
    return {position: drawn[id(subject.arguments[position])] for position in subject.checked}


def signed_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Random values of either sign and of magnitude 0.5 to 1.5, in both parts where complex."""
    shape = (*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape)
    size = torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu") + 0.5
    sign = torch.randint(0, 2, shape, generator=generator, device="cpu") * 2 - 1
    values = size * sign
    if tensor.is_complex():
        values = torch.view_as_complex(values)
    return values.to(dtype=tensor.dtype, device=tensor.device)


def _dual(tensor: Tensor, tangents: Mapping[int, Tensor | None], position: int) -> Tensor:
    if position in tangents and tangents[position] is None:
        return tensor.detach()
    dual: Tensor = fwAD.make_dual(tensor.detach(), torch.zeros_like(tensor))
    wanted = tangents.get(position)
    if wanted is not None:
        # the tangent of a differentiable view may be another tensor than the one given
        fwAD.unpack_dual(dual).tangent.copy_(wanted)
    return dual


def _tangents_of(returned: Sequence[object], base: Outputs, options: Options) -> Tangents:
    rows = torch.zeros(sum(each.stop - each.start for each in base.rows.values()), dtype=torch.float64, device="cpu")
    present = set()
    for position, own in base.rows.items():
        if position >= len(returned):
            continue
        primal, tangent = fwAD.unpack_dual(returned[position])
        if tangent is None:
            continue
        present.add(position)
        if primal.is_complex() is not tangent.is_complex():
            if options.check_grad_dtypes:
                raise failure(
                    phrase("tangent_dtype", output=position, found=tangent.dtype, expected=primal.dtype),
                    finding("grad_dtype", "forward_ad", details={"expected": str(primal.dtype)}),
                )
            tangent = tangent.real if tangent.is_complex() else torch.complex(tangent, torch.zeros_like(tangent))
        rows[own] = flat_reals(tangent.expand(primal.shape))
    return Tangents(rows=rows, present=frozenset(present))
