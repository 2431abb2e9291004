"""The folded lists below the failures: known ones, inconclusive ones, what is fixed, unchecked, changed or stale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gradbot import messages
from gradbot.model import Outcome, Report, Severity, Target
from gradbot.report import aggregate, text, wording
from gradbot.report.aggregate import NONDETERMINISM, Item
from gradbot.report.compare import Changes
from gradbot.report.markdown_escape import Safe
from gradbot.report.markdown_parts import Detail, Line, Links, Section, blob_url, line


def sections(
    report: Report, changes: Changes, known: Mapping[str, Target], links: Links, detail: Detail
) -> Iterable[Section]:
    told = changes.told
    old = [item for item in told if item.failing and not item.new]
    shaky = [item for item in old if item.kind in NONDETERMINISM]
    batched = [item for item in old if item.check in _BATCHED and item not in shaky]
    plain = [item for item in old if item not in shaky and item not in batched]
    inconclusive = [item for item in told if item.outcome is Outcome.INCONCLUSIVE]
    expected = [item for item in told if item.outcome is Outcome.EXPECTED_FAILURE]
    unexpected = [item for item in told if item.outcome is Outcome.UNEXPECTED_PASS]
    passed = [item for item in told if item.outcome is Outcome.PASSED]
    warnings = [item for item in passed if item.severity is Severity.WARNING]
    notes = [item for item in passed if item.severity is not Severity.WARNING]
    some: tuple[tuple[str, Sequence[Item], str, str], ...] = (
        ("known", plain, "known failure", ""),
        ("nondeterministic", shaky, "known nondeterministic gradient", ""),
        ("batched", batched, "known batched-grad failure", ""),
        ("warnings", warnings, "warning", ""),
        ("inconclusive", inconclusive, "inconclusive result", ""),
        ("unexpected", unexpected, "unexpected pass", "The declaration is no longer needed; take it out."),
        ("expected", expected, "expected failure", ""),
        ("notes", notes, "deviation within the tolerances", ""),
        ("fixed", changes.fixed, "✅ fixed by this pull request", ""),
    )
    for key, items, word, advice in some:
        if items:
            shown = tuple(line(item, known, links, detail) for item in items[: detail.rows])
            count = f"✅ {len(items)} fixed by this pull request" if key == "fixed" else text.plural(len(items), word)
            yield Section(key=key, summary=count, lines=shown, more=len(items) - len(shown), advice=advice)
    yield from _coverage_sections(report, changes, known, links, detail)


_RECORD = Safe("Run `gradbot record -- pytest` to pick up inputs from your tests, or declare cases.")
_BATCHED = ("batched_grad", "batched_forward_grad")


def _coverage_sections(
    report: Report, changes: Changes, known: Mapping[str, Target], links: Links, detail: Detail
) -> Iterable[Section]:
    without = list(aggregate.unchecked(report))
    if without:
        lines = []
        for each in without[: detail.rows]:
            target = known.get(each.target)
            place = target.location if target else None
            lines.append(
                Line(
                    target=text.cut_middle(text.one_line(each.case or each.target), detail.name),
                    check="",
                    headline=text.one_line(messages.reason_text(each.reason, each.details), detail.sentence),
                    place=text.cut_middle(wording.place_text(place, target.package if target else ""), detail.name),
                    url=blob_url(links, place) if place else "",
                )
            )
        verb = "is" if len(without) == 1 else "are"
        summary = f"{len(without)} {verb} not checked"
        advice = _RECORD if any(each.reason == "no_inputs" for each in without) else ""
        more = len(without) - len(lines)
        yield Section(key="unchecked", summary=summary, lines=tuple(lines), more=more, advice=advice)
    if report.problems:
        shown = report.problems[: detail.rows]
        lines = [
            Line(
                target=text.cut_middle(text.one_line(each.module), detail.name),
                check="",
                headline=text.one_line(each.reason, detail.sentence),
            )
            for each in shown
        ]
        summary = f"{text.plural(len(report.problems), 'module')} cannot be imported"
        yield Section(key="problems", summary=summary, lines=tuple(lines), more=len(report.problems) - len(shown))
    changed = list(_coverage_lines(changes, detail))
    if changed:
        shown_lines = tuple(changed[: detail.rows])
        more = len(changed) - len(shown_lines)
        yield Section(key="coverage", summary="What else changed since the base", lines=shown_lines, more=more)
    if changes.stale:
        lines = [
            Line(
                target=text.cut_middle(text.one_line(each.target), detail.name),
                check=each.check,
                headline="no longer fails so",
                where=text.one_line(f"{each.dtype} on {each.device}" if each.device else ""),
            )
            for each in changes.stale[: detail.rows]
        ]
        yield Section(
            key="stale",
            summary=text.plural(len(changes.stale), "stale baseline entry", "stale baseline entries"),
            lines=tuple(lines),
            more=len(changes.stale) - len(lines),
            advice=Safe("`gradbot baseline update` takes them out."),
        )


def _coverage_lines(changes: Changes, detail: Detail) -> Iterable[Line]:
    def change(target: str, headline: str) -> Line:
        return Line(target=text.cut_middle(text.one_line(target), detail.name), check="", headline=headline)

    for name in changes.no_longer_checked:
        yield change(name, "is no longer checked")
    for name in changes.removed:
        yield change(name, "is gone")
    for before, after in changes.renamed:
        yield change(after, f"was {text.cut_middle(text.one_line(before), detail.name)}")
    for name in changes.added:
        yield change(name, "is checked for the first time")
    for each in changes.slower:
        yield change(each.case, f"takes {text.duration(each.after)}, on the base {text.duration(each.before)}")
