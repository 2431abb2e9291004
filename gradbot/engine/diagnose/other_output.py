"""The cotangent of another output is used: swapped with it, or in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from gradbot.engine.comparison import Block
from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View


def predictions(view: View, blocks: Mapping[tuple[int, int], Block]) -> Iterator[Prediction]:
    """A of this output is N of another, or A of this one is zero and that of the other has both."""
    for (output, index), block in blocks.items():
        if output == view.output or index != view.input:
            continue
        words = {"output": view.output, "other": output}
        if block.numerical.shape == view.numerical.shape:
            yield Prediction(pattern="other_cotangent", expected=block.numerical, parameters=words)
            both = block.numerical + view.numerical
            mine = blocks.get((view.output, view.input))
            if mine is None:
                continue
            if torch.allclose(block.analytical, both, rtol=1e-3, atol=1e-5) and not bool(mine.analytical.any()):
                yield Prediction(
                    pattern="other_cotangent", expected=torch.zeros_like(mine.analytical), parameters=words
                )
            if torch.allclose(view.analytical, both, rtol=1e-3, atol=1e-5) and not bool(block.analytical.any()):
                reverse = {"output": output, "other": view.output}
                yield Prediction(pattern="other_cotangent", expected=both, parameters=reverse)
