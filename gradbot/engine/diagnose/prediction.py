"""What a pattern says the wrong Jacobian should be, and how well it does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from gradbot.engine.diagnose.view import View, gap
from gradbot.model import Scalar

THRESHOLD = 1e-3
"""A pattern is named where it leaves less than this part of the error unexplained, or less than the numerical
Jacobian's own error."""

MOST = 0.1
"""However uncertain the numerical Jacobian is, a pattern that leaves more than this explains too little."""

LEAST_NUMBERS = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A pattern with what it predicts of the analytical Jacobian, (rows, columns) as in the view.

    `pattern` and `parameters` are those of `model.Diagnosis`.
    """

    pattern: str
    expected: Tensor
    parameters: Mapping[str, Scalar] = field(default_factory=dict)


def residual(view: View, prediction: Prediction) -> float:
    """The part of the error that a prediction leaves, as a ratio of Frobenius norms: 0 explains all of it."""
    error = float(view.error.norm())
    left = float(gap(view.analytical, prediction.expected).norm())
    if math.isfinite(error):
        return left / error if error else math.inf
    # An error that is not finite is explained when nothing but it was there.
    unexplained = ~(gap(view.analytical, prediction.expected).abs() <= view.allowed)
    return float((unexplained & view.wrong).sum()) / max(int(view.wrong.sum()), 1)


def explained(view: View, prediction: Prediction) -> float:
    """The share of wrong entries that a prediction gets right by a number: predicting zeros is no merit.

    0 where most of what is wrong is zeros, of which a prediction cannot be told from another.
    """
    wrong = view.wrong
    numbers = wrong & (view.analytical != 0)
    if int(numbers.sum()) < LEAST_NUMBERS * int(wrong.sum()):
        return 0.0
    near = gap(view.analytical, prediction.expected).abs() <= view.allowed + THRESHOLD * prediction.expected.abs()
    return float((near & numbers).sum()) / max(int(numbers.sum()), 1)


def threshold(view: View) -> float:
    """What a residual is held to: never below what the numerical Jacobian itself is uncertain by."""
    error = float(view.error.norm())
    if not (error and math.isfinite(error)):
        return THRESHOLD
    return min(max(THRESHOLD, 3 * float(view.bar.norm()) / error), MOST)
