"""Wrong only where the input satisfies a condition: negative, zero, tied, small or large."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View

FEWEST_EACH, FEWEST_TOGETHER = 2, 8
FEWEST_FOR_A_BOUND = 4


def predictions(view: View) -> Iterator[Prediction]:
    """Wrong and right elements of the input, or else of the output, are told apart by their values."""
    wrong, telling = view.wrong, view.telling
    for name, values, axis in (("x", view.x[view.columns], 0), ("y", view.y[view.rows], 1)):
        bad = wrong.any(axis)
        good = ~bad & telling.any(axis)
        found = condition(name, values, bad, good)
        if found is not None:
            mask = bad[None, :] if axis == 0 else bad[:, None]
            expected = torch.where(mask.expand_as(view.numerical), view.analytical, view.numerical)
            yield Prediction(pattern="only_where", expected=expected, parameters={"condition": found})


def condition(name: str, values: Tensor, bad: Tensor, good: Tensor) -> str | None:
    """A condition on `values` that holds of every bad one and of no good one; None where none is sure."""
    inside, outside = values[bad], values[good]
    if len(inside) < FEWEST_EACH or len(outside) < FEWEST_EACH or len(inside) + len(outside) < FEWEST_TOGETHER:
        return None
    for text, holds in (
        (f"{name} = 0", values == 0),
        (f"{name} < 0", values < 0),
        (f"{name} > 0", values > 0),
        (f"{name} ties with another element", _tied(values)),
    ):
        if bool(holds[bad].all()) and not bool(holds[good].any()):
            return text
    if min(len(inside), len(outside)) < FEWEST_FOR_A_BOUND:
        return None
    for text, low, high in (
        ("|{}| < {:.3g}", inside.abs(), outside.abs()),
        ("|{}| > {:.3g}", outside.abs(), inside.abs()),
        ("{} < {:.3g}", inside, outside),
        ("{} > {:.3g}", outside, inside),
    ):
        below, above = float(low.max()), float(high.min())
        if below < above:
            return text.format(name, (below + above) / 2)
    return None


def _tied(values: Tensor) -> Tensor:
    _, inverse, counts = torch.unique(values, return_inverse=True, return_counts=True)
    tied: Tensor = counts[inverse] > 1
    return tied
