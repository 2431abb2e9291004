"""Gradients that passed through a smaller dtype: every entry is representable there, and off by its rounding."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View

FEWEST = 6
_DTYPES = ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11), (torch.float32, 2.0**-24))


def predictions(view: View) -> Iterator[Prediction]:
    """A = round(N): entries of A are exact in the dtype, those of N are not, and differ by at most two roundings."""
    where = view.informative & torch.isfinite(view.analytical)
    values, error = view.analytical[where], view.error[where].abs()
    distinct = torch.unique(values)
    if len(distinct) < FEWEST:
        return
    for dtype, roundoff in _DTYPES:
        exact = bool((values.to(dtype).double() == values).all())
        fine = bool((error <= 8 * roundoff * view.numerical[where].abs() + view.bar[where]).all())
        # Numbers that a still coarser grid holds say nothing of this dtype.
        mantissa = torch.frexp(distinct).mantissa * 2.0**4
        if exact and fine and bool((mantissa != mantissa.round()).any()):
            words = {"dtype": str(dtype).removeprefix("torch.")}
            yield Prediction(
                pattern="dtype_round_trip",
                expected=torch.where(where, view.analytical, view.numerical),
                parameters=words,
            )
            return
