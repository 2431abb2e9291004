"""Why a Jacobian is wrong: patterns in its error, each with what it leaves unexplained.

A pattern predicts the wrong Jacobian from the right one. They are tried in a fixed order, the simplest first, and the
first whose prediction holds is named; where one explains much of the error but not all of it, that is said instead,
and where none does, nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import torch

from gradbot.engine.comparison import Block, Comparison
from gradbot.engine.diagnose import (
    arrangement,
    conjugate,
    detached,
    factor,
    grad_output,
    mean,
    missing,
    not_finite,
    other_output,
    places,
    precision,
    slices,
    terms,
    where,
)
from gradbot.engine.diagnose.prediction import Prediction, explained, residual, threshold
from gradbot.engine.diagnose.view import View, view_of
from gradbot.engine.directional import Point
from gradbot.engine.localise import Localised
from gradbot.engine.problem import Problem
from gradbot.model import Diagnosis

MOST_OF_THE_ERROR = 0.5  # share of wrong entries that a pattern of a compound error explains


def diagnose(
    problem: Problem,
    comparison: Comparison,
    located: Localised,
    *,
    forward: bool = False,
    complex_inputs: Sequence[bool] = (),
    complex_outputs: Sequence[bool] = (),
) -> Diagnosis | None:
    """The pattern of one wrong pair, None where none is recognised.

    `forward` says that the Jacobian was made by jvps: nothing is asked of the backward then, which may not exist.
    `complex_inputs` and `complex_outputs` say which tensors of the problem stand for complex ones.
    """
    blocks = {(block.output, block.input): block for block in comparison.blocks}
    view = view_of(
        Point.of(problem),
        located,
        blocks.get((located.output, located.input)),
        complex_input=_at(complex_inputs, located.input),
        complex_output=_at(complex_outputs, located.output),
        names=problem.input_names,
    )
    if not bool(view.wrong.any()):
        return None
    return recognise(view, blocks, problem=problem, unused=not forward and _unused(problem, located), forward=forward)


def recognise(
    view: View,
    blocks: Mapping[tuple[int, int], Block],
    *,
    problem: Problem | None = None,
    unused: bool = False,
    forward: bool = False,
) -> Diagnosis | None:
    """The first pattern that holds in a view; else "compound" where one explains most entries.

    What needs the function run again is tried where `problem` is given.
    """
    bound = threshold(view)
    best: tuple[float, Prediction] | None = None
    for prediction in _predictions(view, blocks, problem, unused, forward):
        left = residual(view, prediction)
        if left <= bound:
            return Diagnosis(
                pattern=prediction.pattern, parameters=dict(prediction.parameters), residual=left, threshold=bound
            )
        share = explained(view, prediction)
        if share >= MOST_OF_THE_ERROR and (best is None or share > best[0]):
            best = (share, prediction)
    if best is None:
        crossing = slices.crossing(view)
        if crossing is None:
            return None
        return Diagnosis(pattern="compound", parameters={"first": "slices", "places": crossing}, threshold=bound)
    share, prediction = best
    parameters = {"first": prediction.pattern, "share": share, **prediction.parameters}
    return Diagnosis(pattern="compound", parameters=parameters, residual=residual(view, prediction), threshold=bound)


def _predictions(
    view: View, blocks: Mapping[tuple[int, int], Block], problem: Problem | None, unused: bool, forward: bool
) -> Iterator[Prediction]:
    """In the order in which patterns are tried."""
    return chain(
        () if forward or problem is None else detached.predictions(view, problem),
        other_output.predictions(view, blocks),
        missing.predictions(view, unused=unused),
        not_finite.predictions(view),
        factor.predictions(view),
        slices.elements(view),
        slices.single(view),
        () if forward else grad_output.predictions(view),
        conjugate.predictions(view),
        arrangement.predictions(view),
        mean.predictions(view),
        precision.predictions(view),
        places.predictions(view),
        slices.predictions(view),
        where.predictions(view),
        terms.predictions(view),
        missing.cancelled(view),
    )


def _unused(problem: Problem, located: Localised) -> bool:
    linearization = problem.linearize()
    cotangents = [torch.zeros_like(each) for each in linearization.outputs]
    cotangents[located.output] = torch.ones_like(cotangents[located.output])
    return linearization.vjp(cotangents)[located.input] is None


def _at(flags: Sequence[bool], position: int) -> bool:
    return bool(flags[position]) if position < len(flags) else False
