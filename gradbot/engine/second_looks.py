"""What else a failure may mean: a backward that has to be asked otherwise, an output that stands for what it spans.

Each look checks everything again, and counts only where less fails in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradbot.engine.prepare import Prepared, UserCodeError, prepare
from gradbot.engine.references import References
from gradbot.engine.shared import shared
from gradbot.engine.walked_once import walked_once
from gradbot.model import Capability, CheckName, CheckResult, Note, Outcome

Checked = Callable[[Prepared, References], tuple[CheckResult, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was checked, and what was found."""

    prepared: Prepared
    results: tuple[CheckResult, ...]


def may_be_excused(prepared: Prepared, result: CheckResult, references: References) -> bool:
    """Whether one of the looks may make something else of a failure than one."""
    if not failing([result]):
        return False
    return _raises_in_backward([result]) or (references.invariant is None and bool(shared(prepared)))


def walked(
    looked: Looked,
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    seed: int,
    references: References,
    checked: Checked,
) -> Looked:
    """The same, or what is found where every gradient is taken from a fresh graph, if the backward raises otherwise."""
    if not _raises_in_backward(looked.results):
        return looked
    with contextlib.suppress(UserCodeError):
        prepared = prepare(walked_once(func), args, kwargs, seed=seed, references=references)
        again = checked(prepared, references)
        if not _raises_in_backward(again):
            notes = (*looked.prepared.notes, Note(code="walked_once"))
            return Looked(prepared=replace(prepared, notes=notes), results=again)
    return looked


def by_what_is_shared(
    looked: Looked,
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    seed: int,
    references: References,
    checked: Checked,
) -> Looked:
    """The same, or what is found of invariants of the outputs, where those are one of many and their gradient wrong.

    Where random numbers decide all that an invariant leaves out, it is what counts; else its being right leaves the
    failure of the output itself undecided.
    """
    if not failing(looked.results) or references.invariant is not None:
        return looked
    for each in shared(looked.prepared):
        declared = replace(references, invariant=each.invariant)
        with contextlib.suppress(UserCodeError):
            prepared = prepare(func, args, kwargs, seed=seed, references=declared)
            again = checked(prepared, declared)
            if failing(again) < failing(looked.results) and each.tight:
                notes = (*prepared.notes, Note(code="shared_by_draws"))
                return Looked(prepared=replace(prepared, notes=notes), results=again)
            if failing(again) < failing(looked.results):
                return replace(looked, results=_undecided_where_right(looked.results, again))
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
