"""A report for a terminal: the same truths as everywhere, in as many columns as there are, with and without colour."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradbot import messages
from gradbot.model import CaseResult, CheckResult, Evidence, JacobianMap, Outcome, Report, Severity, Target
from gradbot.report import aggregate, heatmap, text, wording
from gradbot.report.aggregate import Item, NotChecked, Occurrence, TargetState
from gradbot.report.compare import Changes

_MOST_DETAILS = 5
_MOST_LINES = 30
_WIDE = 150

_SYMBOLS = {
    Outcome.FAILED: ("✗", "bold red"),
    Outcome.ERRORED: ("!", "bold red"),
    Outcome.CRASHED: ("!", "bold red"),
    Outcome.TIMED_OUT: ("!", "bold red"),
    Outcome.INCONCLUSIVE: ("~", "yellow"),
    Outcome.EXPECTED_FAILURE: ("=", "dim"),
    Outcome.UNEXPECTED_PASS: ("~", "yellow"),
    Outcome.PASSED: ("·", "cyan"),
}
_CHECKED = {
    Outcome.PASSED: ("✓", "green"),
    Outcome.UNSUPPORTED: ("–", "dim"),
    Outcome.SKIPPED: ("–", "dim"),
}


def render(
    report: Report,
    *,
    width: int = 80,
    colour: bool = False,
    verbose: bool = False,
    told: Sequence[Item] | None = None,
    files: Sequence[str] = (),
) -> str:
    """The whole report: one line a thing to tell, details of the most important failures, the last line of counts.

    `told` are the items where they were compared with a base, `files` the paths that the last line names. `verbose`
    gives every failure in full and every reason.
    """
    compared = told is not None
    told = aggregate.items(report) if told is None else told
    parts: list[RenderableType] = [_lines(report, told, compared, width, verbose)]
    failing = [item for item in told if item.failing]
    for item in failing[: len(failing) if verbose else _MOST_DETAILS]:
        parts += ["", _detail(item, width)]
    parts += ["", summary(report, told, files)]
    return printed(Group(*parts), width, colour)


def render_case(result: CaseResult, *, width: int = 80, colour: bool = False) -> str:
    """One case in full: what it ran on, every check with its facts, entries and pictures."""
    case = result.case
    head = Text.assemble((text.one_line(case.id), "bold"), "  ", _symbol(result.outcome))
    source = f"inputs {messages.SOURCES[case.source]}: {wording.reference_text(case)}"
    parts: list[RenderableType] = [head, _indented(Text(source, style="dim"))]
    for word, tensors in (("input", result.inputs), ("output", result.outputs)):
        for tensor in tensors:
            grad = ", requires grad" if tensor.requires_grad else ""
            size = f"{text.shape(tensor.shape)} {tensor.dtype}, {tensor.layout}, {tensor.device}{grad}"
            parts.append(_indented(Text(text.one_line(f"{word} {tensor.name}: {size}"))))
    if result.crash is not None or (result.reason and not result.checks):
        line = wording.occurrence_headline(Occurrence(result=result), result.outcome)
        parts.append(_indented(Text(line, style="red")))
    parts += [_indented(Text(fact)) for fact in wording.facts(Occurrence(result=result))]
    if result.crash is not None and result.crash.output_tail:
        parts.append(_output(result.crash.output_tail))
    for check in result.checks:
        parts += ["", *_check(check, width)]
    parts += ["", _again(result)]
    return printed(Group(*parts), width, colour)


def plain(occurrence: Occurrence, outcome: Outcome, width: int = 100) -> str:
    """Headline, facts, entries and picture of one occurrence as text without colour."""
    return printed(Group(*_body(occurrence, outcome, width)), width, colour=False).strip("\n")


def summary(report: Report, told: Sequence[Item], files: Sequence[str] = ()) -> Text:
    """The last line: how many targets are right, wrong, and so on, and how long it took."""
    counted = aggregate.verdict(report, told=told)
    line = Text()
    for state, style in _STATE_STYLES:
        if counted.states[state]:
            line.append(", " if line else "")
            line.append(f"{text.count(counted.states[state])} {state.value}", style=style)
    if not line:
        line.append("nothing was found to check", style="yellow")
    line.append(f" · {text.plural(counted.checks, 'check')} in {text.plural(counted.cases, 'case')}")
    line.append(f" · {text.duration(report.run.seconds)}", style="dim")
    for path in files:
        line.append(f" · {text.one_line(path)}", style="dim")
    for name in counted.missing_shards:
        line.append(f"\nshard {text.one_line(name)} never reported: what it holds is not checked", style="bold red")
    if counted.interrupted:
        line.append("\nthe run was interrupted: what is missing here is not checked", style="bold red")
    return line


def changes_lines(changes: Changes) -> list[str]:
    """What changed since the base beside failures, a line each."""
    lines = [f"fixed: {item.target} {item.check}: {wording.headline(item)}" for item in changes.fixed]
    lines += [f"no longer checked: {name}" for name in changes.no_longer_checked]
    lines += [f"gone: {name}" for name in changes.removed]
    lines += [f"renamed: {before} is now {after}" for before, after in changes.renamed]
    lines += [f"checked for the first time: {name}" for name in changes.added]
    lines += [
        f"slower: {each.case} takes {text.duration(each.after)}, before {text.duration(each.before)}"
        for each in changes.slower
    ]
    lines += [
        f"stale in the baseline: {entry.target} {entry.check} {entry.kind} ({entry.dtype} on {entry.device})"
        for entry in changes.stale
    ]
    return [text.one_line(line) for line in lines]


_STATE_STYLES = (
    (TargetState.RIGHT, "green"),
    (TargetState.WRONG, "bold red"),
    (TargetState.BROKEN, "bold red"),
    (TargetState.NONDETERMINISTIC, "red"),
    (TargetState.UNEXPECTED_PASS, "yellow"),
    (TargetState.INCONCLUSIVE, "yellow"),
    (TargetState.EXPECTED, "dim"),
    (TargetState.UNCHECKED, "yellow"),
)


def _lines(report: Report, told: Sequence[Item], compared: bool, width: int, verbose: bool) -> RenderableType:
    """What there is to tell: on one line each where there is room for it, else what and where below each other."""
    known = aggregate.targets_by_id(report)
    shown = told if verbose else _at_most(told)
    missing = aggregate.unchecked(report)
    plain = {(result.case.device, result.case.dtype) for result in report.results} <= {("cpu", "float64")}
    rows = [_told(item, known, compared, everywhere=plain) for item in shown]
    rows += [_unchecked(each, known) for each in (missing if verbose else missing[:_MOST_LINES])]
    table = Table.grid(padding=(0, 1), pad_edge=False)
    table.add_column(width=2, justify="right", no_wrap=True)
    if width >= _WIDE:
        table.add_column(ratio=4, overflow="fold")
        table.add_column(width=max((len(row.check) for row in rows), default=0), no_wrap=True)
        table.add_column(ratio=6, overflow="fold")
        table.add_column(ratio=3, overflow="fold", style="dim")
        for row in rows:
            tags = Text("".join(f" · {tag}" for tag in row.tags[1:]), style="dim")
            table.add_row(row.symbol, Text(row.name, style=row.style), row.check, Text(row.said) + tags, row.tags[0])
        table.expand = True
    else:
        table.add_column(overflow="fold")
        for row in rows:
            head = Text.assemble((row.name, row.style), (f"  {row.check}", "cyan"))
            below = Text.assemble(row.said, *((f" · {tag}", "dim") for tag in row.tags if tag))
            table.add_row(row.symbol, Group(head, below))
    hidden = len(told) - len(shown) + (0 if verbose else max(0, len(missing) - _MOST_LINES))
    notes = [Text(text.one_line(messages.note_text(note)), style="dim") for note in report.notes]
    for problem in report.problems:
        why = text.one_line(problem.reason)
        notes.append(Text(f" ! {text.one_line(problem.module)} cannot be imported: {why}", style="yellow"))
    more = [Text(f"   and {text.count(hidden)} more: --verbose shows all", style="dim")] if hidden else []
    return Group(*notes, table, *more)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One thing to tell. `tags` begin with the place, which may be empty."""

    symbol: Text
    name: str
    style: str
    check: str
    said: str
    tags: tuple[str, ...]


def _told(item: Item, known: dict[str, Target], compared: bool, *, everywhere: bool) -> _Row:
    """`everywhere`: all ran in float64 on the CPU, which then goes without saying."""
    target = known.get(item.target)
    place = wording.place_text(aggregate.location(item, known), target.package if target else "")
    standing = wording.CLASSES[item.classification] if compared and item.failing else ""
    return _Row(
        symbol=_symbol(item.outcome, item.severity),
        name=text.one_line(item.target) or "(across targets)",
        style="bold" if item.failing else "",
        check=_check_name(item),
        said=wording.headline(item),
        tags=(place, *(tag for tag in ("" if everywhere else wording.where(item), standing) if tag)),
    )


def _unchecked(each: NotChecked, known: dict[str, Target]) -> _Row:
    target = known.get(each.target)
    place = wording.place_text(target.location, target.package) if target else ""
    return _Row(
        symbol=Text("?", style="yellow"),
        name=text.one_line(each.case or each.target),
        style="",
        check="unchecked",
        said=text.one_line(messages.reason_text(each.reason, each.details)),
        tags=(place,),
    )


def _at_most(told: Sequence[Item]) -> Sequence[Item]:
    failing = sum(item.failing for item in told)
    return told[: max(_MOST_LINES, min(failing, 3 * _MOST_LINES))]


def _detail(item: Item, width: int) -> RenderableType:
    lead = item.lead
    if lead.result is None:
        return Group(Text(text.one_line(item.target), style="bold"), *map(Text, wording.facts(lead)))
    case = lead.result.case
    head = Text(text.one_line(case.target), style="bold")
    for part in (case.name, item.check, case.dtype, case.device):
        head.append(f" · {text.one_line(part)}" if part else "", style="not bold")
    more = [f"certainty: {sure}"] if (sure := wording.certainty(item)) else []
    rest = len(item.occurrences) - 1
    if rest:
        more.append(f"seen {text.plural(rest, 'more time')}: {wording.where(item)}")
    parts: list[RenderableType] = [head, *map(_indented, _body(lead, item.outcome, width)), _indented(_fact(more))]
    if lead.check is None and lead.result.crash is not None and lead.result.crash.output_tail:
        parts.append(_output(lead.result.crash.output_tail))
    parts.append(_again(lead.result, item.rule))
    return Group(*parts)


def _body(occurrence: Occurrence, outcome: Outcome, width: int) -> list[RenderableType]:
    """Headline, facts, entries and the picture of the error of one occurrence."""
    parts: list[RenderableType] = [Text(wording.occurrence_headline(occurrence, outcome), style="red")]
    parts.append(_fact(wording.facts(occurrence)))
    evidence = occurrence.finding.evidence if occurrence.finding else None
    if evidence is not None:
        parts += _evidence(evidence, occurrence, width)
    return parts


def _evidence(evidence: Evidence, occurrence: Occurrence, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if evidence.entries:
        parts.append(_entries(evidence, occurrence))
    pictures = [each for each in evidence.maps if each.what == "error" and each.rows * each.columns > 1]
    parts += [_picture(each, min(width - 4, 64)) for each in pictures]
    if evidence.steps:
        parts.append(_steps(evidence))
    return parts


def _entries(evidence: Evidence, occurrence: Occurrence) -> Table:
    left, right = wording.kind_of_input(occurrence)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(left, overflow="fold")
    table.add_column(right, overflow="fold")
    for title in ("analytical", "numerical", "tolerance"):
        table.add_column(title, justify="right", overflow="fold")
    for entry in evidence.entries[:5]:
        bar = f" ±{text.number(entry.error_bar, 1)}" if entry.error_bar else ""
        table.add_row(
            text.index(entry.input_index),
            text.index(entry.output_index),
            Text(text.aligned(entry.analytical), style="red"),
            text.aligned(entry.numerical) + bar,
            text.number(entry.tolerance, 2),
        )
    return table


def _steps(evidence: Evidence) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("step", "numerical", "analytical"):
        table.add_column(title, justify="right", overflow="fold")
    for each in evidence.steps[:8]:
        numerical = f"{text.aligned(each.numerical)} ±{text.number(each.error_bar, 1)}"
        table.add_row(text.number(each.step, 2), numerical, text.aligned(each.analytical))
    return table


def _picture(picture: JacobianMap, width: int) -> RenderableType:
    drawn = heatmap.render(picture, width=width)
    lines = []
    for line, signs in zip(drawn.lines, drawn.signs, strict=True):
        styled = ((character, _style(character, sign)) for character, sign in zip(line, signs, strict=True))
        runs = itertools.groupby(styled, key=lambda each: each[1])
        lines.append(Text.assemble(*(("".join(character for character, _ in run), style) for style, run in runs)))
    return Group(Text(drawn.caption, style="dim"), *lines)


def _style(character: str, sign: int) -> str:
    return "dim" if character == heatmap.RAMP[0] else "red" if sign >= 0 else "blue"


def _check(check: CheckResult, width: int) -> list[RenderableType]:
    head = Text.assemble(_symbol(check.outcome), " ", (text.one_line(check.check, 60), "bold"))
    word = messages.OUTCOMES[check.outcome]
    head.append(f"  {word} · {text.duration(check.seconds)}", style="dim")
    parts: list[RenderableType] = [head]
    if check.reason:
        parts.append(_indented(Text(text.one_line(messages.reason_text(check.reason, check.details)))))
    for finding in check.findings:
        occurrence = Occurrence(result=None, check=None, finding=finding)
        sure = (finding.severity.value, messages.CERTAINTIES[finding.certainty], text.one_line(finding.rule, 20))
        told = " · ".join(part for part in (*sure, wording.place_text(finding.location)) if part)
        parts += [_indented(each) for each in _body(occurrence, check.outcome, width)]
        parts.append(_indented(Text(told, style="dim")))
    if not check.findings:
        own = Occurrence(result=None, check=check)
        parts.append(_indented(_fact(wording.facts(own))))
        if check.evidence is not None:
            parts += [_indented(each) for each in _evidence(check.evidence, own, width)]
    return parts


def _again(result: CaseResult, rule: str = "") -> RenderableType:
    """The command that runs a case again, never broken across lines, so that it can be copied."""
    command = messages.reproduction(result.case)
    if text.has_hidden(command):
        return Text("  again: no command, because a name holds control characters", style="dim")
    lines = [Text.assemble(("  again: ", "dim"), (command, "green"), no_wrap=True, overflow="ignore")]
    if rule:
        more = f"  more:  gradbot show {_quoted(result.case.id)}; gradbot explain {text.one_line(rule, 20)}"
        lines.append(Text(more, style="dim", no_wrap=True, overflow="ignore"))
    return Group(*lines)


def _quoted(name: str) -> str:
    return messages.quoted(text.one_line(name, 500))


def _output(tail: str) -> RenderableType:
    return _indented(Group(Text("last output:", style="dim"), Text(text.tail(tail, 12), style="dim")), 4)


def _fact(said: Iterable[str]) -> RenderableType:
    return Group(*[Text(line) for line in said])


def _check_name(item: Item) -> str:
    return text.one_line(item.check, 60) or "run"


def _dim(line: str) -> list[Text]:
    return [Text(line, style="dim")] if line else []


def _indented(what: RenderableType, by: int = 2) -> RenderableType:
    return Padding(what, (0, 0, 0, by))


def _symbol(outcome: Outcome, severity: Severity | None = None) -> Text:
    symbol, style = _SYMBOLS.get(outcome) or _CHECKED[outcome]
    if outcome is Outcome.PASSED and severity is None:
        symbol, style = _CHECKED[outcome]
    if outcome is Outcome.PASSED and severity is Severity.WARNING:
        symbol, style = "~", "yellow"
    return Text(symbol, style=style)


def printed(what: RenderableType, width: int, colour: bool) -> str:
    """What `rich` makes of it in so many columns; colour only where it is asked for, whatever the environment says."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )
    console.print(what, crop=False)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))
