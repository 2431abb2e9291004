"""No gradient at all: None, or zeros, for an input on which the output depends."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View


def predictions(view: View, *, unused: bool) -> Iterator[Prediction]:
    """A = 0; `unused`: the graph has no path from the output to the input, or the backward returned None."""
    if bool((view.analytical == 0).all()):
        pattern = "none_gradient" if unused else "detached_branch"
        yield Prediction(pattern=pattern, expected=torch.zeros_like(view.analytical))


def cancelled(view: View) -> Iterator[Prediction]:
    """A = 0 but for rounding, as terms that cancel leave behind."""
    yield Prediction(pattern="detached_branch", expected=torch.zeros_like(view.analytical))
