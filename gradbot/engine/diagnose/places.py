"""Wrong from an index on, or at multiples of a tile: the marks of a loop bound or a block size."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View, coordinate
from gradbot.model import Scalar


def predictions(view: View) -> Iterator[Prediction]:
    """A = N outside the place; inside every index is wrong. Only where every entry is in view."""
    if not view.whole:
        return
    found: list[tuple[int, Prediction]] = []
    wrong, telling = view.wrong, view.telling | view.wrong
    for side, shape, positions, axis in (
        ("input", view.input_shape, view.columns, 0),
        ("output", view.output_shape, view.rows, 1),
    ):
        for dim, size in enumerate(shape):
            along = coordinate(positions, shape, dim)
            bad = set(torch.unique(along[wrong.any(axis)]).tolist())
            seen = set(torch.unique(along[telling.any(axis)]).tolist())
            place = _place(bad, seen, size)
            if place is None:
                continue
            pattern, words = place
            inside = torch.isin(along, torch.tensor(sorted(bad)))
            mask = inside[None, :] if side == "input" else inside[:, None]
            expected = torch.where(mask.expand_as(view.numerical), view.analytical, view.numerical)
            parameters: dict[str, Scalar] = {"side": side, "dim": dim, "what": _what(view, mask), **words}
            prediction = Prediction(pattern=pattern, expected=expected, parameters=parameters)
            found.append((int(mask.expand_as(view.numerical).sum()), prediction))
    # Two places can hold the same error: the smaller one says more.
    for _, prediction in sorted(found, key=lambda each: each[0]):
        yield prediction


def _place(bad: set[int], seen: set[int], size: int) -> tuple[str, dict[str, int]] | None:
    if not bad or bad >= seen:
        return None
    start = min(bad)
    if start > 0 and len(bad) >= 2 and bad == {each for each in seen if each >= start}:
        return "beyond_index", {"index": start}
    for tile in range(2, size // 2 + 1):
        for offset in (0, tile - 1):
            expected = {each for each in seen if each % tile == offset}
            if len(bad) >= 3 and bad == expected:
                return "tile_multiples", {"tile": tile, "offset": offset}
    return None


def _what(view: View, mask: Tensor) -> str:
    inside = view.analytical[mask.expand_as(view.analytical)]
    return "zero" if bool((inside == 0).all()) else "wrong"
