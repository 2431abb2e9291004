"""A report as GitHub workflow commands: annotations at the method at fault, the most important ones first.

GitHub shows ten per level and step; what is left over is counted in the last one of its level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradbot import messages
from gradbot.model import Location, Outcome, Report
from gradbot.report import aggregate, compare, text, wording
from gradbot.report.aggregate import Item
from gradbot.report.compare import Changes

LEVELS = ("error", "warning", "notice")
PER_LEVEL = 10
MESSAGE_CHARACTERS = 4000
TITLE_CHARACTERS = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One annotation. `path` is POSIX and relative to the repository's root, or empty where no place is known."""

    level: str
    title: str
    message: str
    path: str = ""
    line: int = 1
    end_line: int = 1


def collect(report: Report, changes: Changes | None = None) -> tuple[Annotation, ...]:
    """Every annotation of a report, most important first within each level, not cut to GitHub's limit.

    Failures are errors where they are new and warnings where they are known; warnings and unexpected passes are
    warnings; inconclusive results and small deviations are notices.
    """
    changes = compare.compare(report) if changes is None else changes
    known = aggregate.targets_by_id(report)
    made = [_annotation(item, aggregate.location(item, known)) for item in changes.told if _level(item)]
    made += [
        Annotation(
            level="error",
            title="gradbot: a shard is missing",
            message=f"Shard {text.one_line(name, 100)} never reported: what it should have checked is not checked",
        )
        for name in aggregate.missing_shards(report)
    ]
    return tuple(sorted(made, key=lambda each: LEVELS.index(each.level)))


def render(report: Report, changes: Changes | None = None, *, per_level: int = PER_LEVEL) -> str:
    """The annotations as workflow commands, one a line, at most `per_level` of each level."""
    return "".join(f"{command(each)}\n" for each in chosen(collect(report, changes), per_level))


def chosen(some: Sequence[Annotation], per_level: int = PER_LEVEL) -> tuple[Annotation, ...]:
    """At most `per_level` of each level; the last of a level that has more says how many."""
    return tuple(each for level in LEVELS for each in _cut([a for a in some if a.level == level], per_level))


def _cut(some: Sequence[Annotation], most: int) -> Iterable[Annotation]:
    if len(some) <= most:
        return some
    kept = some[: most - 1]
    rest = f"{text.plural(len(some) - len(kept), 'more annotation')} of this level: see the job summary"
    return [*kept, Annotation(level=some[0].level, title="gradbot", message=rest)]


def command(annotation: Annotation) -> str:
    """One annotation as a workflow command."""
    properties = {"title": annotation.title}
    if annotation.path:
        places = {"file": annotation.path, "line": str(annotation.line), "endLine": str(annotation.end_line)}
        properties = {**places, **properties}
    shown = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{annotation.level} {shown}::{_data(annotation.message)}"


def _level(item: Item) -> str:
    if item.failing:
        return "error" if item.new else "warning"
    if item.outcome is Outcome.UNEXPECTED_PASS:
        return "warning"
    if item.outcome is Outcome.INCONCLUSIVE:
        return "notice"
    if item.outcome is Outcome.PASSED:
        return {"warning": "warning", "error": "warning"}.get(item.severity.value, "notice")
    return ""


def _annotation(item: Item, place: Location | None) -> Annotation:
    lead = item.lead
    said = [wording.headline(item), *wording.facts(lead)]
    seen = " · ".join(part for part in (wording.where(item), wording.certainty(item)) if part)
    standing = wording.CLASSES[item.classification] + (f": {item.because}" if item.because else "")
    said += [seen, standing if item.failing else ""]
    again = messages.reproduction(lead.result.case) if lead.result else ""
    if again and not text.has_hidden(again):
        said.append(again)
    target = text.one_line(item.target) or "across targets"
    title = " ".join(part for part in (target, item.check or "run", item.rule) if part)
    inside = place is not None and _inside(place.path)
    return Annotation(
        level=_level(item),
        title=text.cut_middle(title, TITLE_CHARACTERS),
        message=text.cut("\n".join(line for line in said if line), MESSAGE_CHARACTERS),
        path=place.path if place is not None and inside else "",
        line=max(1, place.line) if place is not None and inside else 1,
        end_line=max(1, place.line, place.end_line or 1) if place is not None and inside else 1,
    )


def _inside(path: str) -> bool:
    """Whether a path is one of the repository's own, relative and without hidden characters."""
    outside = path.startswith("/") or ".." in path.split("/") or "\\" in path or text.has_hidden(path)
    return bool(path) and not outside


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")
