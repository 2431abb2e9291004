"""What the markdown templates show: a report and its changes, chosen and cut to one level of detail. Plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gradbot import messages
from gradbot.model import Environment, Evidence, JacobianMap, Outcome, Report, Target
from gradbot.report import aggregate, heatmap, text, wording
from gradbot.report.aggregate import ERRORS, NONDETERMINISM, Item, TargetState, Verdict
from gradbot.report.compare import Changes
from gradbot.report.markdown_matrix import LEGEND, capabilities
from gradbot.report.markdown_parts import (
    STAGES,
    Detail,
    EntryRow,
    Failure,
    Line,
    Links,
    MatrixRow,
    Section,
    line,
    place_of,
)
from gradbot.report.markdown_sections import sections


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
    titles, rows, right = capabilities(report, changes, detail)
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
        alarms=_alarms(counted, aggregate.interrupted_shards(report), detail),
        heading="New failures" if changes.base is not None or changes.has_baseline else "Failures",
        failures=failures,
        lines=tuple(line(item, known, links, detail) for item in rest[: detail.lines]),
        sections=tuple(sections(report, changes, known, links, detail)),
        matrix_titles=titles,
        matrix=rows[: detail.rows],
        matrix_right=right,
        legend=LEGEND,
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


def _alarms(counted: Verdict, interrupted: Sequence[str], detail: Detail) -> tuple[str, ...]:
    names = [text.one_line(name, 60) for name in counted.missing_shards[: max(1, detail.rows)]]
    said = []
    if names:
        more = len(counted.missing_shards) - len(names)
        tail = f" and {text.count(more)} more" if more else ""
        word = "Shard" if len(counted.missing_shards) == 1 else "Shards"
        said.append(f"{word} {', '.join(names)}{tail} never reported: what it should have checked is not checked.")
    if counted.interrupted:
        which = f" of shard {text.one_line(text.listing(interrupted), 200)}" if interrupted else ""
        said.append(f"The run{which} was interrupted: what is missing here is not checked.")
    return tuple(said)


def _failure(
    group: Sequence[Item], known: Mapping[str, Target], links: Links, detail: Detail, pictured: bool
) -> Failure:
    item = group[0]
    lead = item.lead
    place, url, symbol = place_of(item, known, links, detail)
    evidence = lead.finding.evidence if lead.finding else None
    titles = wording.kind_of_input(lead)
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
        output=_last_output(group),
        command="" if text.has_hidden(command) or len(command) > 2000 else command,
        also=tuple(line(other, known, links, detail) for other in group[1 : 1 + _also(detail)]),
    )


def _last_output(group: Sequence[Item]) -> str:
    """Of the first crash among what is told of a target; a finding that a crash followed has none of its own."""
    whole = (item.lead.result for item in group if item.lead.check is None and item.lead.result is not None)
    crash = next((result.crash for result in whole if result.crash is not None), None)
    return text.tail(crash.output_tail, 8, 1200) if crash else ""


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
