"""Entries that are not numbers, or infinite, where the derivative is finite; with the inputs that make them so."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View
from gradbot.engine.diagnose.where import condition
from gradbot.model import Scalar


def predictions(view: View) -> Iterator[Prediction]:
    """A is not finite at some entries, and N elsewhere."""
    bad = ~torch.isfinite(view.analytical) & torch.isfinite(view.numerical)
    if not bool(bad.any()):
        return
    what = "NaN" if bool(view.analytical[bad].isnan().any()) else "infinite"
    parameters: dict[str, Scalar] = {"what": what, "count": int(bad.sum()), "where": _share(bad)}
    for name, values, axis in (("x", view.x[view.columns], 0), ("y", view.y[view.rows], 1)):
        found = condition(name, values, bad.any(axis), ~bad.any(axis))
        if found is not None:
            parameters["where"] = found
            break
    yield Prediction(
        pattern="not_finite", expected=torch.where(bad, view.analytical, view.numerical), parameters=parameters
    )


def _share(bad: Tensor) -> str:
    return "all" if bool(bad.all()) else f"of {bad.numel():,}"
