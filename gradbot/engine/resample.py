"""Inputs moved off a kink, a jump or the edge of a domain, where the user allows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradbot.engine.prepare import Prepared, prepare
from gradbot.engine.references import References
from gradbot.engine.trees import map_leaves
from gradbot.model import CheckName, CheckResult, Note, Outcome

DISTANCE = 2.0**-5  # relative to the size of the values: beyond every step that is taken

POINTS = frozenset({"kink", "jump", "domain", "undecided"})


def undecided(results: Sequence[CheckResult]) -> bool:
    """Whether the backward, or the jvp, could not be told right or wrong for the point that it was looked at."""
    first_order = (CheckName.BACKWARD.value, CheckName.FORWARD_AD.value)
    return any(
        each.check in first_order and each.outcome is Outcome.INCONCLUSIVE and each.reason in POINTS for each in results
    )


def moved_off(prepared: Prepared, seed: int) -> Prepared | None:
    """The same call at a generic point nearby; None where the inputs are read by closure and cannot be moved.

    Parameters of modules stay where they are. Raises `UserCodeError` where the function refuses the point.
    """
    subject = prepared.subject
    if prepared.problem.in_place:
        return None
    generator = torch.Generator().manual_seed(seed)
    new = {id(old): _moved(each, generator) for old, each in zip(subject.originals, subject.inputs, strict=True)}
    args, kwargs = map_leaves(lambda leaf: new.get(id(leaf), leaf), (subject.args, dict(subject.kwargs)))
    references = References(projection=subject.projection, invariant=subject.invariant)
    moved = prepare(subject.func, args, kwargs, seed=seed, references=references)
    return replace(moved, notes=(*moved.notes, Note(code="resampled")))


def _moved(tensor: Tensor, generator: torch.Generator) -> Tensor:
    values = tensor.detach().clone()
    if values.layout is torch.strided and not values.is_mkldnn:
        size = values.abs()
        typical = float(size.mean()) if values.numel() else 0.0
        direction = torch.rand(values.shape, generator=generator, dtype=torch.float64) * 2 - 1
        values = values + DISTANCE * size.clamp_min(typical or 1.0) * direction.to(values)
    return values.requires_grad_()
