"""The mean of the gradient, or of grad_output, was subtracted."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View


def predictions(view: View) -> Iterator[Prediction]:
    """A = N - mean(N) over all elements or along one dim, of either side; only where every entry is in view."""
    if not view.whole:
        return
    for side, shape in (("input", view.input_shape), ("output", view.output_shape)):
        dims: list[tuple[int, ...]] = [tuple(range(len(shape)))]
        dims += [(dim,) for dim in range(len(shape)) if len(shape) > 1 and shape[dim] > 1]
        for chosen in dims:
            if math.prod(shape) > 1 and chosen:
                words = {"side": side, "dim": chosen[0] if len(chosen) < len(shape) else "all"}
                yield Prediction(
                    pattern="mean_subtracted", expected=_centred(view.numerical, side, shape, chosen), parameters=words
                )


def _centred(matrix: Tensor, side: str, shape: tuple[int, ...], dims: tuple[int, ...]) -> Tensor:
    if side == "input":
        folded = matrix.reshape(matrix.shape[0], *shape)
        means = folded.mean([1 + dim for dim in dims], keepdim=True)
    else:
        folded = matrix.reshape(*shape, matrix.shape[1])
        means = folded.mean(list(dims), keepdim=True)
    return torch.sub(folded, means).reshape(matrix.shape)
