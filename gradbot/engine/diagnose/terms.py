"""A term that is missing or counted twice, and a factor that is missing or one too many: errors, or ratios, that are
a known quantity of the inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradbot.engine.diagnose.factor import ratio
from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View
from gradbot.model import Scalar

FEWEST = 5  # entries that a quantity has to explain
VARIED = 0.05  # how much a quantity varies, relative to its size: a constant one is no evidence


def predictions(view: View) -> Iterator[Prediction]:
    """Factors first, as A = q N or q A = N, then terms, as A - N = c q where it is not zero."""
    quantities = list(_quantities(view))
    yield from _factors(view, quantities)
    yield from _terms(view, quantities)


def _quantities(view: View) -> Iterator[tuple[str, Tensor]]:
    """Known quantities at the entries of the view: by column, by row, and products of the two."""
    across: list[tuple[str, Tensor]] = [("x", view.x[view.columns])]
    down: list[tuple[str, Tensor]] = [("y", view.y[view.rows])]
    for name, values in view.others:
        if len(values) == len(view.x):
            across.append((name, values[view.columns]))
        elif len(values) == len(view.y):
            down.append((name, values[view.rows]))
    if len(view.y) == len(view.x):
        across.append(("y", view.y[view.columns]))
        down.append(("x", view.x[view.rows]))
    for name, values in across:
        yield name, values[None, :].expand_as(view.numerical)
    for name, values in down:
        yield name, values[:, None].expand_as(view.numerical)
    for first, left in down:
        for second, right in across:
            yield f"{first} {second}ᵀ", left[:, None] * right[None, :]


def _factors(view: View, quantities: list[tuple[str, Tensor]]) -> Iterator[Prediction]:
    where = view.informative & (view.numerical != 0)
    if int(where.sum()) < FEWEST:
        return
    derived = [
        form
        for name, q in quantities
        if "ᵀ" not in name
        for form in (
            (name, q),
            (f"{name}²", q.square()),
            (f"(1 - {name})", 1 - q),
            (f"(1 + {name})", 1 + q),
            (f"(1 - {name}²)", 1 - q.square()),
        )
    ]
    for name, q in derived:
        if not _varied(q[where]):
            continue
        for pattern, multiplied in (("extra_factor", view.numerical * q), ("missing_factor", view.numerical / q)):
            expected = torch.where(view.numerical == 0, 0.0, multiplied)
            factor = ratio(view.analytical, expected, where)
            if factor is not None and factor != 0 and bool(torch.isfinite(expected).all()):
                words: dict[str, Scalar] = {"quantity": name, "factor": factor}
                yield Prediction(pattern=pattern, expected=factor * expected, parameters=words)


def _terms(view: View, quantities: list[tuple[str, Tensor]]) -> Iterator[Prediction]:
    error = view.error
    support = view.wrong
    if int(support.sum()) < FEWEST:
        return
    for name, q in (*quantities, ("1", torch.ones_like(error))):
        if name == "1" and not _varied(view.numerical[support]):
            continue
        if name != "1" and not _varied(q[support]):
            continue
        factor = ratio(error, q, support)
        if factor is None or factor == 0:
            continue
        expected = view.numerical + torch.where(support, factor * q, 0.0)
        pattern = "doubled_term" if _is_doubled(view, support) else "missing_term"
        yield Prediction(pattern=pattern, expected=expected, parameters={"quantity": name, "factor": factor})


def _is_doubled(view: View, support: Tensor) -> bool:
    """Whether the term stands twice rather than not at all.

    Where the term is all there is, an entry without it is zero and one with it twice is doubled. Where there is more
    everywhere, a term with the sign of what is there is one too many, and a term against it is missing.
    """
    error, numerical = view.error[support], view.numerical[support]
    analytical = error + numerical
    small = 1e-3 * error.abs()
    empty = int((analytical.abs() <= small).sum())
    twice = int(((analytical - 2 * numerical).abs() <= small).sum())
    if empty != twice:
        return twice > empty
    return float((error * numerical).sum()) > 0


def _varied(values: Tensor) -> bool:
    size = float(values.abs().mean())
    return len(values) > 1 and size > 0 and float(values.std()) > VARIED * size
