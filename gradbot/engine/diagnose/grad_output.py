"""grad_output that is ignored, reduced to one number, or read at its first element only."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View, coordinate


def predictions(view: View) -> Iterator[Prediction]:
    """Rows of A, which are backwards of unit cotangents, made of column sums of N."""
    if len(view.y) < 2:
        return
    full = view.numerical_columns(view.columns)
    sums = full.sum(0)
    everywhere = sums[None, :].expand_as(view.numerical)
    if _ignores(view):
        constant = view.analytical[:1].expand_as(view.analytical)
        yield Prediction(pattern="grad_output_ignored", expected=constant)
        return
    for what, scale in (("sum", 1.0), ("mean", 1.0 / len(view.y))):
        yield Prediction(pattern="grad_output_reduced", expected=scale * everywhere, parameters={"what": what})
    first = (view.rows == 0).to(everywhere.dtype)[:, None]
    yield Prediction(pattern="grad_output_first_element", expected=everywhere * first)
    for dim, size in enumerate(view.output_shape):
        if size < 2 or len(view.output_shape) < 2:
            continue
        lines = full.view(*view.output_shape, len(view.columns)).sum(dim, keepdim=True)
        along = lines.expand(*view.output_shape, len(view.columns)).reshape(full.shape)[view.rows]
        chosen = (coordinate(view.rows, view.output_shape, dim) == 0).to(along.dtype)[:, None]
        yield Prediction(pattern="grad_output_first_element", expected=along * chosen, parameters={"dim": dim})
        for what, scale in (("sum", 1.0), ("mean", 1.0 / size)):
            words = {"what": f"{what} along dim {dim}"}
            yield Prediction(pattern="grad_output_reduced", expected=scale * along, parameters=words)


def _ignores(view: View) -> bool:
    """The backward of zeros is that of ones, and not zero."""
    zeros = view.gradient(torch.zeros_like(view.y))
    return bool(zeros.any()) and _same(zeros, view.gradient(torch.ones_like(view.y)))


def _same(left: Tensor, right: Tensor) -> bool:
    return bool(torch.isclose(left, right, rtol=1e-9, atol=0.0).all())
