"""What the markdown templates show: a report and its changes, chosen and cut to one level of detail. Plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from gradbot import messages
from gradbot.model import CheckName, Environment, Evidence, JacobianMap, Location, Outcome, Report, Severity, Target
from gradbot.report import aggregate, heatmap, text, wording
from gradbot.report.aggregate import ERRORS, NONDETERMINISM, Item, TargetState, Verdict
from gradbot.report.compare import Changes
from gradbot.report.markdown_escape import Safe


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Where things are on the web; empty where they are not. `blob` ends before the path: `https://…/blob/<sha>`."""

    blob: str = ""
    run: str = ""
    html: str = ""
    junit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """How much is shown: how many failures in full, one line each, rows of a list, entries, pictures."""

    full: int
    lines: int
    rows: int
    entries: int
    pictures: int
    right_rows: bool
    name: int = 200
    sentence: int = 600


STAGES = (
    Detail(full=10_000, lines=10_000, rows=10_000, entries=8, pictures=10_000, right_rows=True),
    Detail(full=10_000, lines=10_000, rows=10_000, entries=3, pictures=10_000, right_rows=False),
    Detail(full=10_000, lines=10_000, rows=50, entries=3, pictures=5, right_rows=False),
    Detail(full=10, lines=300, rows=20, entries=3, pictures=3, right_rows=False),
    Detail(full=3, lines=100, rows=10, entries=2, pictures=1, right_rows=False, sentence=300),
    Detail(full=0, lines=40, rows=5, entries=0, pictures=0, right_rows=False, name=120, sentence=160),
    Detail(full=0, lines=5, rows=0, entries=0, pictures=0, right_rows=False, name=60, sentence=80),
    Detail(full=0, lines=0, rows=0, entries=0, pictures=0, right_rows=False, name=40, sentence=60),
)
"""From everything to the verdict alone. Passing rows go first, then details, then the text of single failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow:
    input: str
    output: str
    analytical: str
    numerical: str
    tolerance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One target's failure in full. `also` are its other failures, one line each."""

    target: str
    check: str
    headline: str
    place: str
    url: str
    symbol: str
    where: str
    certainty: str
    classification: str
    because: str
    rule: str
    facts: tuple[str, ...]
    input_title: str
    output_title: str
    entries: tuple[EntryRow, ...]
    picture: str
    output: str
    command: str
    also: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing to tell on one line."""

    target: str
    check: str
    headline: str
    place: str = ""
    url: str = ""
    where: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A folded list. `summary` stands on the fold, before the only line's own words where it has but one."""

    key: str
    summary: str
    lines: tuple[Line, ...]
    more: int = 0
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    target: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that a template can show."""

    symbol: str
    verdict: str
    head: str
    base: str
    devices: str
    counts: str
    links: Links
    fork: bool
    compared: bool
    alarms: tuple[str, ...]
    heading: str
    failures: tuple[Failure, ...]
    lines: tuple[Line, ...]
    sections: tuple[Section, ...]
    matrix_titles: tuple[str, ...]
    matrix: tuple[MatrixRow, ...]
    matrix_right: int
    legend: str
    environments: tuple[Environment, ...]
    left_out: tuple[str, ...]
    detail: Detail = field(default=STAGES[0])


def build(report: Report, changes: Changes, links: Links, detail: Detail, *, fork: bool = False) -> View:
    """The view of a report at one level of detail."""
    counted = aggregate.verdict(report, told=changes.told)
    known = aggregate.targets_by_id(report)
    failing = [item for item in changes.told if item.failing and item.new]
    groups = _by_target(failing)
    full = groups[: detail.full]
    rest = [item for group in groups[detail.full :] for item in group]
    pictures = iter(range(detail.pictures))
    failures = tuple(_failure(group, known, links, detail, next(pictures, None) is not None) for group in full)
    symbol, verdict = _verdict(changes, counted)
    titles, rows, right = _matrix(report, changes, detail)
    return View(
        symbol=symbol,
        verdict=verdict,
        head=report.run.head_sha[:7],
        base=_base(changes),
        devices=_devices(report),
        counts=_counts(report, counted),
        links=links,
        fork=fork,
        compared=changes.base is not None or changes.has_baseline,
        alarms=_alarms(counted, detail),
        heading="New failures" if changes.base is not None or changes.has_baseline else "Failures",
        failures=failures,
        lines=tuple(line(item, known, links, detail) for item in rest[: detail.lines]),
        sections=tuple(_sections(report, changes, known, links, detail)),
        matrix_titles=titles,
        matrix=rows[: detail.rows],
        matrix_right=right,
        legend=_LEGEND,
        environments=report.environments[: detail.rows],
        left_out=tuple(_left_out(groups, rest, rows, right, detail)),
        detail=detail,
    )


def _by_target(items: Sequence[Item]) -> list[list[Item]]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.target, []).append(item)
    return list(groups.values())


def _left_out(
    groups: Sequence[Sequence[Item]], rest: Sequence[Item], rows: Sequence[MatrixRow], right: int, detail: Detail
) -> Iterable[str]:
    shown = min(len(rest), detail.lines)
    if shown:
        yield f"the details of {text.plural(shown, 'failure')}"
    if len(rest) > shown:
        yield text.plural(len(rest) - shown, "failure")
    pictured = sum(_map_of_error(group[0]) is not None for group in groups)
    if pictured > detail.pictures:
        yield f"{text.plural(pictured - detail.pictures, 'heat map')}"
    if any(_entry_count(group[0]) > detail.entries for group in groups[: detail.full]):
        yield f"all but {text.plural(detail.entries, 'entry', 'entries')} of every table of entries"
    beside = sum(max(0, len(group) - 1 - _also(detail)) for group in groups[: detail.full])
    if beside:
        yield f"{text.plural(beside, 'failure')} beside another one of the same target"
    if right:
        yield f"{text.plural(right, 'target')} without a problem in the table of capabilities"
    if len(rows) > detail.rows:
        yield f"{text.plural(len(rows) - detail.rows, 'row')} of that table"


def _entry_count(item: Item) -> int:
    finding = item.lead.finding
    return len(finding.evidence.entries) if finding is not None and finding.evidence is not None else 0


def _also(detail: Detail) -> int:
    return min(detail.rows, 30)


def _verdict(changes: Changes, counted: Verdict) -> tuple[str, str]:
    """The one line that says whether the gradients are right."""
    among = f"in {text.plural(counted.checked, 'checked target')}"
    compared = changes.base is not None or changes.has_baseline
    new = [item for item in changes.told if item.failing and item.new]
    old = [item for item in changes.told if item.failing and not item.new]
    parts = _counted(new, "new " if compared else "", among)
    if counted.missing_shards:
        parts.append(f"{text.plural(len(counted.missing_shards), 'shard')} missing")
    if counted.interrupted:
        parts.append("interrupted")
    if parts:
        return "❌", ", ".join(parts)
    if old:
        return "⚠️", f"nothing new, {', '.join(_counted(old, 'known ', among))}"
    if not counted.checks:
        return "❔", "nothing was checked"
    doubtful = counted.states[TargetState.INCONCLUSIVE]
    if doubtful:
        return "✅", f"nothing wrong {among}, {doubtful} of them inconclusive"
    return "✅", f"all gradients are right {among}"


def _counted(items: Sequence[Item], word: str, among: str) -> list[str]:
    """Targets with wrong gradients, nondeterministic ones, and those that raised, died or hung."""
    wrong = {item.target for item in items if item.outcome is Outcome.FAILED and item.kind not in NONDETERMINISM}
    shaky = {item.target for item in items if item.outcome is Outcome.FAILED} - wrong
    broken = {item.target for item in items if item.outcome in ERRORS} - wrong - shaky
    parts = []
    if wrong:
        parts.append(text.plural(len(wrong), f"{word}wrong gradient"))
    if shaky:
        parts.append(text.plural(len(shaky), f"{word}nondeterministic gradient"))
    if broken:
        parts.append(f"{text.plural(len(broken), f'{word}crash or error', f'{word}crashes or errors')}")
    if parts:
        parts[0] += f" {among}"
    return parts


def _base(changes: Changes) -> str:
    if changes.base is None:
        return ""
    branch, sha = changes.base.branch, changes.base.head_sha[:7]
    return f"{branch}@{sha}" if branch and sha else branch or sha or "another run"


def _devices(report: Report) -> str:
    names = [
        f"{_device(each.device)} ({each.device_name})" if each.device_name else _device(each.device)
        for each in report.environments
    ]
    used = names or sorted({_device(result.case.device) for result in report.results})
    return text.listing(dict.fromkeys(used), most=4)


def _device(name: str) -> str:
    return name.upper() if name in ("cpu", "cuda", "mps", "xpu") else name


def _counts(report: Report, counted: Verdict) -> str:
    checked = f"{text.count(counted.checked)} of {text.plural(counted.targets, 'target')} checked"
    return f"{checked}, {text.plural(counted.checks, 'check')} in {text.duration(report.run.seconds)}"


def _alarms(counted: Verdict, detail: Detail) -> tuple[str, ...]:
    names = [text.one_line(name, 60) for name in counted.missing_shards[: max(1, detail.rows)]]
    said = []
    if names:
        more = len(counted.missing_shards) - len(names)
        tail = f" and {text.count(more)} more" if more else ""
        word = "Shard" if len(counted.missing_shards) == 1 else "Shards"
        said.append(f"{word} {', '.join(names)}{tail} never reported: what it should have checked is not checked.")
    if counted.interrupted:
        said.append("The run was interrupted: what is missing here is not checked.")
    return tuple(said)


def _failure(
    group: Sequence[Item], known: Mapping[str, Target], links: Links, detail: Detail, pictured: bool
) -> Failure:
    item = group[0]
    lead = item.lead
    place, url, symbol = _place(item, known, links, detail)
    evidence = lead.finding.evidence if lead.finding else None
    titles = wording.kind_of_input(lead)
    crash = lead.result.crash if lead.result else None
    command = messages.reproduction(lead.result.case) if lead.result else ""
    return Failure(
        target=text.cut_middle(text.one_line(item.target) or "across targets", detail.name),
        check=item.check or "run",
        headline=text.cut(wording.headline(item), detail.sentence),
        place=place,
        url=url,
        symbol="" if symbol == item.check else symbol,
        where=wording.where(item),
        certainty=wording.certainty(item),
        classification=wording.CLASSES[item.classification],
        because=text.cut(item.because, detail.sentence),
        rule=item.rule,
        facts=tuple(text.cut(fact, detail.sentence) for fact in wording.facts(lead)),
        input_title=titles[0],
        output_title=titles[1],
        entries=_entries(evidence, detail),
        picture=_drawn(_map_of_error(item)) if pictured else "",
        output=text.tail(crash.output_tail, 8, 1200) if crash else "",
        command="" if text.has_hidden(command) or len(command) > 2000 else command,
        also=tuple(line(other, known, links, detail) for other in group[1 : 1 + _also(detail)]),
    )


def _map_of_error(item: Item) -> JacobianMap | None:
    finding = item.lead.finding
    maps = finding.evidence.maps if finding is not None and finding.evidence is not None else ()
    return next((each for each in maps if each.what == "error" and each.rows * each.columns > 1), None)


def _drawn(picture: JacobianMap | None) -> str:
    if picture is None:
        return ""
    drawn = heatmap.render(picture, width=48, height=12)
    return "\n".join([drawn.caption, *drawn.lines])


def _entries(evidence: Evidence | None, detail: Detail) -> tuple[EntryRow, ...]:
    if evidence is None:
        return ()
    return tuple(
        EntryRow(
            input=text.index(entry.input_index[:8]),
            output=text.index(entry.output_index[:8]),
            analytical=text.aligned(entry.analytical),
            numerical=text.aligned(entry.numerical)
            + (f" ± {text.number(entry.error_bar, 1)}" if entry.error_bar else ""),
            tolerance=text.number(entry.tolerance, 2),
        )
        for entry in evidence.entries[: detail.entries]
    )


def _place(item: Item, known: Mapping[str, Target], links: Links, detail: Detail) -> tuple[str, str, str]:
    place = aggregate.location(item, dict(known))
    if place is None:
        return "", "", ""
    target = known.get(item.target)
    shown = text.cut_middle(wording.place_text(place, target.package if target else ""), detail.name)
    return shown, blob_url(links, place), text.one_line(place.symbol.rpartition(".")[2], 60)


def blob_url(links: Links, place: Location) -> str:
    """The place on the web; empty where there is none, or where the path does not lie in the repository."""
    path = place.path
    if not links.blob or path.startswith("/") or ".." in path.split("/") or text.has_hidden(path) or len(path) > 400:
        return ""
    lines = f"#L{place.line}" + (f"-L{place.end_line}" if place.end_line and place.end_line > place.line else "")
    return f"{links.blob}/{quote(path)}{lines}"


def line(item: Item, known: Mapping[str, Target], links: Links, detail: Detail) -> Line:
    """An item on one line."""
    place, url, _ = _place(item, known, links, detail)
    return Line(
        target=text.cut_middle(text.one_line(item.target), detail.name),
        check=item.check or "run",
        headline=text.cut(wording.headline(item), detail.sentence),
        place=place,
        url=url,
        where=wording.where(item),
        because=text.cut(item.because, detail.sentence),
    )


def _sections(
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


_TITLES = {
    CheckName.BACKWARD.value: "backward",
    CheckName.FORWARD_AD.value: "forward",
    CheckName.DOUBLE_BACKWARD.value: "double",
    CheckName.FORWARD_OVER_BACKWARD.value: "fwd over bwd",
    CheckName.BATCHED_GRAD.value: "vmap",
    CheckName.BATCHED_FORWARD_GRAD.value: "vmap fwd",
    CheckName.UNDEFINED_GRAD.value: "None grads",
    CheckName.GRAD_OUTPUTS.value: "layouts",
    CheckName.GRAD_METADATA.value: "metadata",
    CheckName.NEEDS_INPUT_GRAD.value: "needs grad",
    CheckName.DETERMINISM.value: "deterministic",
    CheckName.SIDE_EFFECTS.value: "no side effects",
    CheckName.REGISTRATION.value: "registration",
    CheckName.REFERENCE.value: "reference",
    CheckName.COMPILED.value: "compiled",
}
"""Checks as titles of the columns of a capability table."""

_SYMBOLS = {
    "ok": "✅",
    "wrong": "❌",
    "broken": "💥",
    "inconclusive": "❔",
    "expected": "🔶",
    "unsupported": "–",
    "skipped": "·",
}
_LEGEND = (
    "✅ right · ❌ wrong · 💥 raised, died, hung · ❔ inconclusive · 🔶 expected failure · – unsupported · · skipped"
)


def title_of(check: str) -> str:
    """A check as the title of a column."""
    return _TITLES.get(check, text.one_line(check, 30))


def _matrix(report: Report, changes: Changes, detail: Detail) -> tuple[tuple[str, ...], tuple[MatrixRow, ...], int]:
    grid = aggregate.matrix(report)
    changed = {(each.target, each.check, each.device): each.before for each in changes.capabilities}
    devices: dict[str, list[str]] = {}
    for target, _, device in grid.cells:
        devices.setdefault(target, [])
        if device not in devices[target]:
            devices[target].append(device)
    rows: list[MatrixRow] = []
    right = 0
    for target in grid.targets:
        states = {grid.cells.get((target, check, device)) for check in grid.checks for device in devices[target]}
        trouble = bool(states & {"wrong", "broken", "inconclusive", "expected"})
        if not trouble and not detail.right_rows:
            right += 1
            continue
        cells = tuple(_cell(grid, changed, target, check, sorted(devices[target])) for check in grid.checks)
        rows.append(MatrixRow(target=text.cut_middle(text.one_line(target), detail.name), cells=cells))
    return tuple(title_of(check) for check in grid.checks[:20]), tuple(rows), right


def _cell(
    grid: aggregate.Matrix, changed: Mapping[tuple[str, str, str], str], target: str, check: str, devices: Sequence[str]
) -> str:
    shown: dict[str, list[str]] = {}
    for device in devices:
        state = grid.cells.get((target, check, device))
        if state is None:
            continue
        before = changed.get((target, check, device))
        word = ""
        if before is not None:
            word = " fixed" if state == "ok" and before in ("wrong", "broken") else f" was {_SYMBOLS[before]}"
        shown.setdefault(_SYMBOLS[state] + word, []).append(device)
    if len(shown) == 1:
        return next(iter(shown))
    return " ".join(f"{symbol} {text.one_line('/'.join(names), 40)}" for symbol, names in shown.items())
