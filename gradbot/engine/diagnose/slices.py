"""A few slices that are zero, or scaled, where everything else is right."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradbot.engine.diagnose.factor import ratio
from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View, coordinate
from gradbot.model import Scalar


def predictions(view: View) -> Iterator[Prediction]:
    """A = 0 or A = c N at some indices of one dim, A = N elsewhere; the dim that needs the fewest entries first."""
    found: list[tuple[int, Prediction]] = []
    wrong = view.wrong
    for side, shape, positions, hit in (
        ("input", view.input_shape, view.columns, wrong.any(0)),
        ("output", view.output_shape, view.rows, wrong.any(1)),
    ):
        for dim, size in enumerate(shape):
            along = coordinate(positions, shape, dim)
            indices = torch.unique(along[hit])
            if size < 2 or not 0 < len(indices) < len(torch.unique(along)):
                continue
            inside = torch.isin(along, indices)
            mask = inside[None, :] if side == "input" else inside[:, None]
            mask = mask.expand_as(view.numerical)
            found += [(int(mask.sum()), each) for each in _within(view, mask, side, dim, indices)]
    for _, prediction in sorted(found, key=lambda each: each[0]):
        yield prediction


def _within(view: View, mask: Tensor, side: str, dim: int, indices: Tensor) -> Iterator[Prediction]:
    words: dict[str, Scalar] = {"side": side, "dim": dim, "rows": _text(indices)}
    if bool((view.analytical[mask] == 0).all()):
        yield Prediction(pattern="zero_rows", expected=view.numerical * ~mask, parameters=words)
        return
    factor = ratio(view.analytical, view.numerical, mask & view.informative)
    if factor is not None:
        expected = torch.where(mask, factor * view.numerical, view.numerical)
        yield Prediction(pattern="scaled_slices", expected=expected, parameters={**words, "factor": factor})


def _text(indices: Tensor) -> str:
    listed = [str(each) for each in indices[:6].tolist()]
    return ", ".join(listed) + (", ..." if len(indices) > 6 else "")
