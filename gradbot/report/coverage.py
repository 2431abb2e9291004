"""How many of the discovered targets are checked, by inputs from where, and which are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gradbot import messages
from gradbot.model import InputSource, Location, Report
from gradbot.report import aggregate
from gradbot.report.aggregate import TargetState


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncovered:
    """A target that no check came to a result for, where it stands and why."""

    target: str
    location: Location | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Counts of targets. `by_source` counts every checked target once, under the first source that checked it."""

    targets: int
    checked: int
    by_source: Mapping[str, int]
    uncovered: tuple[Uncovered, ...]

    @property
    def percent(self) -> float:
        """Checked targets in percent of all; 100 where there are none to check."""
        return 100.0 * self.checked / self.targets if self.targets else 100.0


def coverage(report: Report) -> Coverage:
    """What of a report's targets is checked. A case that was skipped, unsupported or killed does not count."""
    states = aggregate.target_states(report, aggregate.items(report))
    sources = _sources(report)
    checked = [name for name, state in states.items() if state is not TargetState.UNCHECKED and name in sources]
    why = {each.target: messages.reason_text(each.reason, each.details) for each in aggregate.unchecked(report)}
    known = aggregate.targets_by_id(report)
    uncovered = tuple(
        Uncovered(
            target=name,
            location=known[name].location if name in known else None,
            reason=why.get(name, "no check came to a result"),
        )
        for name in states
        if name not in checked
    )
    counts = {source.value: sum(sources[name] is source for name in checked) for source in InputSource}
    return Coverage(
        targets=len(states),
        checked=len(checked),
        by_source={source: count for source, count in counts.items() if count},
        uncovered=uncovered,
    )


def _sources(report: Report) -> dict[str, InputSource]:
    """The first source, in the order of `InputSource`, by which a check of the target was made."""
    order = list(InputSource)
    found: dict[str, InputSource] = {}
    for result in report.results:
        if any(aggregate.was_made(check) for check in result.checks):
            source, name = result.case.source, result.case.target
            found[name] = min(source, found.get(name, source), key=order.index)
    return found
