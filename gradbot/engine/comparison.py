"""What comes out of comparing an analytical with a numerical Jacobian, by whichever method."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torch import Tensor


class Verdict(str, Enum):
    """Whether two Jacobians agree."""

    AGREE = "agree"
    DIFFER = "differ"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The Jacobian of one output by one input, formed in full: outputs down, inputs across.

    All tensors are (output elements, input elements), float64 on the CPU. `error_bar` bounds the error of `numerical`,
    `tolerance` is what the caller allows.
    """

    output: int
    input: int
    analytical: Tensor
    numerical: Tensor
    error_bar: Tensor
    tolerance: Tensor

    @property
    def wrong(self) -> Tensor:
        """Which entries differ by more than is allowed; NaN against a number is wrong, NaN against NaN is not.

        Nothing is wrong where the numerical one is unknown (an infinite bar).
        """
        both_nan = self.analytical.isnan() & self.numerical.isnan()
        same = self.analytical == self.numerical
        close = (self.analytical - self.numerical).abs() <= self.tolerance + self.error_bar
        return ~(close | same | both_nan | self.error_bar.isinf())


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A verdict, how it was reached and how far it reaches.

    `wrong_pairs` are (output, input) pairs that differ. `blocks` are there where Jacobians were formed. `resolution`
    is the smallest relative error that would have been seen, `coverage` the share of output rows compared so.
    `reason` is a code of `messages.REASONS` where unsure. `largest_relative_error` is the largest entry-wise error
    that is real (beyond its error bar) yet inside the tolerances, relative to the entry; 0.0 where none is.
    """

    verdict: Verdict
    method: str
    wrong_pairs: tuple[tuple[int, int], ...] = ()
    blocks: tuple[Block, ...] = ()
    resolution: float | None = None
    coverage: float | None = None
    reason: str = ""
    largest_relative_error: float = 0.0
    linear: bool = True
