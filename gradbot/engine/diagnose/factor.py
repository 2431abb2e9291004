"""A constant factor: -1, 2, 1/2, the number of elements and its root, or any other number."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View

FEWEST = 3  # nonzero entries: through fewer, some factor always fits


def predictions(view: View) -> Iterator[Prediction]:
    """A = c N, with c the median ratio of entries."""
    factor = ratio(view.analytical, view.numerical, view.informative)
    if factor is None or abs(factor) < 1e-6 or abs(factor - 1) < 1e-9:
        return
    named = name(factor, view)
    if int(view.informative.sum()) < FEWEST and not named:
        return
    expected = factor * view.numerical
    if abs(factor + 1) < 1e-4:
        yield Prediction(pattern="sign", expected=expected, parameters={"factor": -1.0})
    else:
        yield Prediction(pattern="constant_factor", expected=expected, parameters={"factor": factor, "name": named})


def ratio(analytical: Tensor, numerical: Tensor, where: Tensor) -> float | None:
    """The median of A/N over entries where N is there, refined by least squares over those that have it."""
    usable = where & (numerical != 0) & torch.isfinite(analytical) & torch.isfinite(numerical)
    if not bool(usable.any()):
        return None
    a, n = analytical[usable], numerical[usable]
    middle = (a / n).median()
    close = (a - middle * n).abs() <= 1e-2 * a.abs()
    if not bool(close.any()):
        return float(middle)
    return float((a[close] * n[close]).sum() / n[close].square().sum())


def name(factor: float, view: View) -> str:
    """A factor that stands for something, as text; "" for just a number."""
    sizes = {f"the size {size} of dim {dim}": size for dim, size in enumerate(view.input_shape)}
    sizes |= {
        "the number of elements": math.prod(view.input_shape),
        "the number of outputs": math.prod(view.output_shape),
    }
    for text, value in {"-1": -1.0, "2": 2.0, "1/2": 0.5, "-2": -2.0, "-1/2": -0.5}.items():
        if math.isclose(factor, value, rel_tol=1e-4):
            return text
    for text, size in sizes.items():
        if size > 1:
            for form, value in (
                ("{}", size),
                ("1/{}", 1 / size),
                ("sqrt of {}", size**0.5),
                ("1/sqrt of {}", size**-0.5),
            ):
                if math.isclose(abs(factor), value, rel_tol=1e-4):
                    return form.format(text) if factor > 0 else "-" + form.format(text)
    return ""
