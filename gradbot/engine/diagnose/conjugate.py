"""A missing conjugation of a complex function, seen as real pairs: signs of imaginary parts on either side."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View


def predictions(view: View) -> Iterator[Prediction]:
    """A = N with imaginary parts negated across, down, or both (conj of the derivative itself)."""
    across, down = _signs(view.columns), _signs(view.rows)
    ways = []
    if view.complex_input and view.complex_output:
        ways.append(("the derivative", down[:, None] * across[None, :]))
    if view.complex_input:
        ways.append(("the gradient", across[None, :].expand_as(view.numerical)))
    if view.complex_output:
        ways.append(("grad_output", down[:, None].expand_as(view.numerical)))
    for what, signs in ways:
        yield Prediction(pattern="missing_conj", expected=view.numerical * signs, parameters={"what": what})


def _signs(positions: Tensor) -> Tensor:
    """+1 for real parts, -1 for imaginary ones; pairs are the trailing dimension."""
    return 1.0 - 2.0 * (positions % 2)
