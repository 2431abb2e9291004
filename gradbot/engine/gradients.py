"""Gradients of two functions of the same inputs, compared: a function with its reference, eager with compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.directional import UNIT_ROUNDOFF
from gradbot.model import Entry, Evidence

DRAWS = 3
ROUNDINGS = 64  # how many roundings of the coarser dtype two correct formulas may differ by


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two functions differ first: in value or shape (`input` None) or in the gradient for one input.

    `shapes` tells both where an output has another shape; an output too few or too many has the numbers of outputs.
    """

    output: int
    input: int | None
    relative: float
    evidence: Evidence
    shapes: str = ""


Outputs = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""From fresh leaves to differentiable outputs on a graph."""


def compare_gradients(
    first: Outputs,
    second: Outputs,
    inputs: Sequence[Tensor],
    other_inputs: Sequence[Tensor] | None = None,
    *,
    atol: float | None = None,
    rtol: float | None = None,
    values: bool = True,
    seed: int = 0,
) -> tuple[Difference, ...]:
    """Differences of values and of gradients for a few random cotangents, one a pair.

    `inputs` are leaves; `other_inputs` those of `second` where they have another dtype. Values are not compared where
    `values` is False. Where a tolerance is None it follows from the coarser dtype: `ROUNDINGS` of them, relative to the
    entry, and of the largest entry for entries that nearly cancel.
    """
    generator = torch.Generator().manual_seed(seed)
    leaves = [each.detach().clone().requires_grad_() for each in inputs]
    others = [each.detach().clone().requires_grad_() for each in (other_inputs or inputs)]
    with torch.enable_grad():
        left, right = tuple(first(leaves)), tuple(second(others))
    if len(left) != len(right):
        return (_other_shape(min(len(left), len(right)), (len(left),), (len(right),)),)
    found: dict[tuple[int, int | None], Difference] = {}
    for output, (mine, theirs) in enumerate(zip(left, right, strict=True)):
        if mine.shape != theirs.shape:
            found[output, None] = _other_shape(output, tuple(mine.shape), tuple(theirs.shape))
            continue
        roundoff = _roundoff(mine, theirs, *leaves, *others)
        if values:
            difference = _difference(output, None, mine, theirs, roundoff, atol, rtol)
            if difference is not None:
                found[output, None] = difference
        for _ in range(DRAWS):
            cotangent = _cotangent(mine, generator)
            mine_grads = _gradients(mine, leaves, cotangent)
            their_grads = _gradients(theirs, others, cotangent.to(theirs.dtype))
            for index, (own, other) in enumerate(zip(mine_grads, their_grads, strict=True)):
                difference = _difference(output, index, own, other, roundoff, atol, rtol)
                if difference is not None:
                    found.setdefault((output, index), difference)
    return tuple(found.values())


def _other_shape(output: int, mine: tuple[int, ...], theirs: tuple[int, ...]) -> Difference:
    evidence = Evidence(method="gradients compared", output_shape=mine)
    return Difference(output=output, input=None, relative=math.inf, evidence=evidence, shapes=f"{mine} and {theirs}")


def _gradients(output: Tensor, leaves: Sequence[Tensor], cotangent: Tensor) -> list[Tensor]:
    if not output.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    grads = torch.autograd.grad(output, leaves, cotangent, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(leaf) if grad is None else grad for grad, leaf in zip(grads, leaves, strict=True)]


def _cotangent(output: Tensor, generator: torch.Generator) -> Tensor:
    def draw() -> Tensor:
        return torch.rand(output.shape, generator=generator, dtype=torch.float64).add_(0.5) * (
            torch.randint(0, 2, output.shape, generator=generator) * 2 - 1
        )

    values = torch.complex(draw(), draw()) if output.is_complex() else draw()
    return values.to(output.device, output.dtype)


def _roundoff(*tensors: Tensor) -> float:
    real = [each.dtype.to_real() if each.is_complex() else each.dtype for each in tensors]
    return max(UNIT_ROUNDOFF.get(each, 2.0**-53) for each in real)


def _difference(
    output: int,
    index: int | None,
    mine: Tensor,
    theirs: Tensor,
    roundoff: float,
    atol: float | None,
    rtol: float | None,
) -> Difference | None:
    wide = torch.complex128 if mine.is_complex() else torch.float64
    own, other = (
        each.detach().to_dense() if each.layout != torch.strided else each.detach() for each in (mine, theirs)
    )
    own, other = own.to("cpu", wide).reshape(-1), other.to("cpu", wide).reshape(-1)
    if not own.numel():
        return None
    largest = float(other.abs().nan_to_num(0.0, 0.0, 0.0).max())
    absolute = ROUNDINGS * roundoff * largest if atol is None else atol
    relative = ROUNDINGS * roundoff if rtol is None else rtol
    allowed = absolute + relative * other.abs()
    gap = (own - other).abs()
    same = (gap <= allowed) | (own == other) | (own.isnan() & other.isnan())
    if bool(same.all()):
        return None
    order = torch.where(same, -1.0, gap.nan_to_num(torch.inf)).argsort(descending=True)[: min(8, int((~same).sum()))]
    entries = tuple(
        Entry(
            output_index=(),
            input_index=tuple(int(each) for each in torch.unravel_index(place, mine.shape)),
            analytical=own[place].item(),
            numerical=other[place].item(),
            error=float(gap[place]),
            tolerance=float(allowed[place]),
        )
        for place in order
    )
    worst = int(order[0])
    scale = float(other[worst].abs()) or largest or 1.0
    evidence = Evidence(
        method="gradients compared",
        input_shape=tuple(mine.shape),
        entries=entries,
        wrong_entries=int((~same).sum()),
        checked_entries=same.numel(),
    )
    return Difference(output=output, input=index, relative=float(gap[worst]) / scale, evidence=evidence)
