"""A few elements or slices that are zero, or scaled, where everything else is right."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradbot.engine.diagnose.factor import ratio
from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View, coordinate
from gradbot.model import Scalar

FEW = 2
CROSSING = 6  # wrong elements that two crossing slices hold at least


def elements(view: View) -> Iterator[Prediction]:
    """A = 0 or A = c N for at most a few single elements of the input or the output, A = N elsewhere."""
    wrong = view.wrong
    for side, shape, positions, hit in (
        ("input", view.input_shape, view.columns, wrong.any(0)),
        ("output", view.output_shape, view.rows, wrong.any(1)),
    ):
        chosen = positions[hit]
        if not view.whole and not (view.named and side == "input"):
            continue
        if not 1 <= len(chosen) <= FEW or len(shape) < 2 or _fills_a_slice(chosen, shape):
            continue
        mask = hit[None, :] if side == "input" else hit[:, None]
        places = [tuple(int(each) for each in torch.unravel_index(place, shape)) for place in chosen]
        words: dict[str, Scalar] = {"side": side, "rows": ", ".join(str(place) for place in places)}
        yield from _scaled(view, mask.expand_as(view.numerical), "zero_elements", "scaled_elements", words)


def single(view: View) -> Iterator[Prediction]:
    """The same for one index of one dim."""
    return (each for each in predictions(view) if "," not in str(each.parameters["rows"]))


def crossing(view: View) -> str | None:
    """Where an error lies in one index of one dim and one index of another, as two faults leave it; else None."""
    if not view.whole:
        return None
    for side, shape, positions, hit in (
        ("input", view.input_shape, view.columns, view.wrong.any(0)),
        ("output", view.output_shape, view.rows, view.wrong.any(1)),
    ):
        wrong = positions[hit]
        if len(wrong) < CROSSING:
            continue
        for first in range(len(shape)):
            along = coordinate(wrong, shape, first)
            index = int(along.mode().values)
            rest = wrong[along != index]
            for second in range(len(shape)):
                others = torch.unique(coordinate(rest, shape, second))
                full = len(rest) + 1 >= math.prod(shape) // shape[second] - 1 and (along == index).sum() > 1
                if second != first and len(others) == 1 and full:
                    return f"{side} index {index} of dim {first} and index {int(others)} of dim {second}"
    return None


def _fills_a_slice(chosen: Tensor, shape: tuple[int, ...]) -> bool:
    for dim in range(len(shape)):
        index = torch.unique(coordinate(chosen, shape, dim))
        if len(index) == 1 and len(chosen) == math.prod(shape) // shape[dim]:
            return True
    return False


def predictions(view: View) -> Iterator[Prediction]:
    """A = 0 or A = c N at some indices of one dim, A = N elsewhere; the dim that needs the fewest entries first."""
    found: list[tuple[int, Prediction]] = []
    wrong = view.wrong
    for side, shape, positions, hit in (
        ("input", view.input_shape, view.columns, wrong.any(0)),
        ("output", view.output_shape, view.rows, wrong.any(1)),
    ):
        for dim, size in enumerate(shape):
            along = coordinate(positions, shape, dim)
            indices = torch.unique(along[hit])
            if size < 2 or not 0 < len(indices) < len(torch.unique(along)):
                continue
            inside = torch.isin(along, indices)
            mask = inside[None, :] if side == "input" else inside[:, None]
            mask = mask.expand_as(view.numerical)
            found += [(int(mask.sum()), each) for each in _within(view, mask, side, dim, indices)]
    for _, prediction in sorted(found, key=lambda each: each[0]):
        yield prediction


def _within(view: View, mask: Tensor, side: str, dim: int, indices: Tensor) -> Iterator[Prediction]:
    words: dict[str, Scalar] = {"side": side, "dim": dim, "rows": _text(indices)}
    yield from _scaled(view, mask, "zero_rows", "scaled_slices", words)


def _scaled(view: View, mask: Tensor, zero: str, scaled: str, words: dict[str, Scalar]) -> Iterator[Prediction]:
    if bool((view.analytical[mask] == 0).all()):
        yield Prediction(pattern=zero, expected=view.numerical * ~mask, parameters=words)
        return
    factor = ratio(view.analytical, view.numerical, mask & view.informative)
    if factor is not None:
        expected = torch.where(mask, factor * view.numerical, view.numerical)
        yield Prediction(pattern=scaled, expected=expected, parameters={**words, "factor": factor})


def _text(indices: Tensor) -> str:
    listed = [str(each) for each in indices[:6].tolist()]
    return ", ".join(listed) + (", ..." if len(indices) > 6 else "")
