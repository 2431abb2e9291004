"""The right numbers at the wrong places: transposed, flipped, shifted, permuted, swapped or copied from a neighbour.

On the input's side the gradient itself is rearranged, on the output's side grad_output was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradbot.engine.diagnose.factor import ratio
from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View
from gradbot.model import Scalar


def predictions(view: View) -> Iterator[Prediction]:
    """Fixed rearrangements first, with a constant factor beside; then any permutation along one dim."""
    if len(view.x) == len(view.y):
        yield Prediction(pattern="jacobian_transposed", expected=view.numerical_at(view.columns, view.rows).T)
    for side, shape in (("input", view.input_shape), ("output", view.output_shape)):
        for pattern, parameters, order in _orders(shape):
            moved = _moved(view, side, order)
            if torch.equal(moved, view.numerical):
                continue
            yield Prediction(pattern=pattern, expected=moved, parameters={"side": side, **parameters})
    if view.whole:
        yield from _matched(view)
    for side, shape in (("input", view.input_shape), ("output", view.output_shape)):
        for pattern, parameters, order in _orders(shape):
            moved = _moved(view, side, order)
            factor = ratio(view.analytical, moved, view.informative)
            if factor is not None and factor != 0 and abs(factor - 1) > 1e-6 and int((moved != 0).sum()) > 8:
                words: dict[str, Scalar] = {"side": side, **parameters, "factor": factor}
                yield Prediction(pattern=pattern, expected=factor * moved, parameters=words)


def _orders(shape: tuple[int, ...]) -> Iterator[tuple[str, dict[str, Scalar], Tensor]]:
    """Rearrangements of a tensor of a shape, as the flat position that each flat position takes its value from."""
    count = math.prod(shape)
    positions = torch.arange(count).view(shape)
    dims = len(shape)
    for first in range(dims):
        for second in range(first + 1, dims):
            if shape[first] > 1 and shape[second] > 1:
                swapped = positions.transpose(first, second).reshape(-1)
                yield "transpose", {"first": first, "second": second}, swapped
                if shape[first] != shape[second]:
                    # Read in the other order: the inverse of the same reshaping.
                    yield "transpose", {"first": first, "second": second}, swapped.argsort()
    for dim in range(dims):
        if shape[dim] > 1:
            yield "permutation", {"dim": dim, "how": "flipped"}, positions.flip(dim).reshape(-1)
    for dim in range(dims):
        if shape[dim] > 2:
            for shift in (1, -1):
                order = positions.roll(shift, dim).reshape(-1)
                yield "permutation", {"dim": dim, "how": f"shifted by {shift}"}, order


def _moved(view: View, side: str, order: Tensor) -> Tensor:
    if side == "input":
        return view.numerical_at(view.rows, order[view.columns])
    return view.numerical_at(order[view.rows], view.columns)


def _matched(view: View) -> Iterator[Prediction]:
    """Every slice of A that is wrong is some slice of N: a permutation, two swapped, or copies."""
    for side, shape in (("input", view.input_shape), ("output", view.output_shape)):
        for dim, size in enumerate(shape):
            if not 2 <= size <= 256:
                continue
            analytical, numerical = (_unfolded(each, side, shape, dim) for each in (view.analytical, view.numerical))
            sources = _sources(analytical, numerical)
            if sources is None:
                continue
            expected = _folded(numerical[sources], side, shape, dim, view.analytical.shape)
            moved = (sources != torch.arange(size)).nonzero()[:, 0].tolist()
            if not moved:
                continue
            common: dict[str, Scalar] = {"side": side, "dim": dim}
            if len(set(sources.tolist())) < size:
                parameters = {**common, "first": moved[0], "second": int(sources[moved[0]])}
                yield Prediction(pattern="copied_slice", expected=expected, parameters=parameters)
            elif len(moved) == 2:
                parameters = {**common, "first": moved[0], "second": moved[1]}
                yield Prediction(pattern="swapped_rows", expected=expected, parameters=parameters)
            else:
                yield Prediction(pattern="permutation", expected=expected, parameters=common)


def _unfolded(matrix: Tensor, side: str, shape: tuple[int, ...], dim: int) -> Tensor:
    """(indices along `dim` of that side, everything else)."""
    if side == "input":
        return matrix.reshape(matrix.shape[0], *shape).movedim(1 + dim, 0).reshape(shape[dim], -1)
    return matrix.reshape(*shape, matrix.shape[1]).movedim(dim, 0).reshape(shape[dim], -1)


def _folded(unfolded: Tensor, side: str, shape: tuple[int, ...], dim: int, like: torch.Size) -> Tensor:
    if side == "input":
        rest = (like[0], *shape[:dim], *shape[dim + 1 :])
        return unfolded.reshape(shape[dim], *rest).movedim(0, 1 + dim).reshape(like)
    rest = (*shape[:dim], *shape[dim + 1 :], like[1])
    return unfolded.reshape(shape[dim], *rest).movedim(0, dim).reshape(like)


def _sources(analytical: Tensor, numerical: Tensor) -> Tensor | None:
    """For every slice of A the slice of N that it equals, its own where that fits; None where one fits nowhere.

    A slice of zeros is no copy of another: it has a pattern of its own.
    """
    scale = float(numerical.abs().amax().nan_to_num(0.0)) or 1.0
    distances = torch.cdist(analytical.nan_to_num(), numerical.nan_to_num())
    allowed = 1e-4 * numerical.norm(dim=1).clamp_min(1e-3 * scale)
    own = distances.diagonal() <= allowed
    nearest = distances.argmin(1)
    fits = (distances.gather(1, nearest[:, None])[:, 0] <= allowed[nearest]) & (analytical.abs().amax(1) > 1e-6 * scale)
    if not bool((own | fits).all()):
        return None
    return torch.where(own, torch.arange(len(own)), nearest)
