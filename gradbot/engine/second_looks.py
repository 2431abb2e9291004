"""What else a failure may mean: a backward that has to be asked otherwise, an output that stands for what it spans.

Each look checks everything again, and counts only where less fails in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradbot.engine.prepare import Prepared, UserCodeError
from gradbot.engine.references import References
from gradbot.engine.shared import shared
from gradbot.engine.walked_once import walked_once
from gradbot.model import Capability, CheckName, CheckResult, Note, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was checked, and what was found."""

    prepared: Prepared
    results: tuple[CheckResult, ...]


Look = Callable[[Callable[..., Any], References], Looked]
"""Prepares and checks a function with the arguments at hand. Raises `UserCodeError` where its forward raises."""


def may_be_excused(prepared: Prepared, result: CheckResult, references: References) -> bool:
    """Whether one of the looks may make something else of a failure than one."""
    if not failing([result]):
        return False
    return _raises_in_backward([result]) or (references.invariant is None and bool(shared(prepared)))


def looked_again(looked: Looked, func: Callable[..., Any], references: References, look: Look) -> Looked:
    """What the looks make of the failures of `func`; the same where they make nothing of them."""
    return _by_what_is_shared(_walked(looked, func, references, look), func, references, look)


def _walked(looked: Looked, func: Callable[..., Any], references: References, look: Look) -> Looked:
    """The same, or what is found where every gradient is taken from a fresh graph, if the backward raises otherwise."""
    if not _raises_in_backward(looked.results):
        return looked
    with contextlib.suppress(UserCodeError):
        again = look(walked_once(func), references)
        if not _raises_in_backward(again.results):
            notes = (*looked.prepared.notes, Note(code="walked_once"))
            return replace(again, prepared=replace(again.prepared, notes=notes))
    return looked


def _by_what_is_shared(looked: Looked, func: Callable[..., Any], references: References, look: Look) -> Looked:
    """The same, or what is found of invariants of the outputs, where those are one of many and their gradient wrong.

    Where random numbers decide all that an invariant leaves out, it is what counts; else its being right leaves the
    failure of the output itself undecided.
    """
    if not failing(looked.results) or references.invariant is not None:
        return looked
    for each in shared(looked.prepared):
        with contextlib.suppress(UserCodeError):
            again = look(func, replace(references, invariant=each.invariant))
            if not failing(again.results) < failing(looked.results):
                continue
            if not each.tight:
                return replace(looked, results=_undecided_where_right(looked.results, again.results))
            notes = (*again.prepared.notes, Note(code="shared_by_draws"))
            return replace(again, prepared=replace(again.prepared, notes=notes))
    return looked


def failing(results: Sequence[CheckResult]) -> set[str]:
    """The checks that found something wrong."""
    return {each.check for each in results if each.outcome in (Outcome.FAILED, Outcome.ERRORED)}


def _raises_in_backward(results: Sequence[CheckResult]) -> bool:
    """Whether the backward raises, so that nothing of it was checked."""
    return any(each.check == CheckName.BACKWARD.value and each.reason == "user_error" for each in results)


def _undecided_where_right(results: Sequence[CheckResult], again: Sequence[CheckResult]) -> tuple[CheckResult, ...]:
    """The results without failures of checks that do not fail `again`, where products of the outputs are checked."""
    excused = failing(results) - failing(again)
    return tuple(
        replace(
            each, outcome=Outcome.INCONCLUSIVE, capability=Capability.SUPPORTED, reason="right_for_product", findings=()
        )
        if each.check in excused
        else each
        for each in results
    )
