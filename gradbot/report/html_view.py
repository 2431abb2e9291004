"""What the HTML page shows, as data: one short record a case for the list, one record a case for when it is opened.

All words are made here; the page's script only arranges them. Jacobian maps travel as one byte a block.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gradbot import messages
from gradbot.model import (
    CaseResult,
    CheckResult,
    Evidence,
    Finding,
    JacobianMap,
    Location,
    Outcome,
    Report,
    Target,
)
from gradbot.report import aggregate, text, wording
from gradbot.report.aggregate import Classification, Item, Occurrence
from gradbot.report.compare import Changes
from gradbot.report.markdown_parts import Links, blob_url

MOST_PICTURED = 400
"""Cases whose maps and charts are kept, most important first: the page stays small enough to open at once."""

LEVELS_A_DECADE = 16
_NOT_FINITE = 128
_CONTEXT = 3
_MOST_SOURCE = 60
Data = dict[str, Any]


def encode_map(picture: JacobianMap) -> Data:
    """A map as bytes in base64, row by row: 0 for nothing, 1..127 for positive values, 129..255 for negative ones.

    Level 127 is the largest magnitude, 16 levels less a tenth of it; 128 is not finite.
    """
    finite = [abs(value) for row in picture.values for value in row if math.isfinite(value)]
    largest = max(finite, default=0.0)
    width = min((len(row) for row in picture.values), default=0)
    levels = bytes(_level(value, largest) for row in picture.values for value in row[:width])
    return {
        "what": text.one_line(picture.what, 20),
        "rows": picture.rows,
        "columns": picture.columns,
        "width": width,
        "height": len(picture.values),
        "largest": _plain(largest),
        "levels": base64.b64encode(levels).decode("ascii"),
    }


def _level(value: float, largest: float) -> int:
    if not math.isfinite(value):
        return _NOT_FINITE
    if value == 0 or largest == 0:
        return 0
    level = 127 + round(LEVELS_A_DECADE * (math.log10(abs(value)) - math.log10(largest)))
    return 0 if level < 1 else (level if value > 0 else 128 + level)


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def cases(
    report: Report, changes: Changes, links: Links, sources: Mapping[str, str]
) -> tuple[list[Data], list[Data], int]:
    """Short records, full records in the same order (most important first), and how many cases lost their pictures."""
    known = aggregate.targets_by_id(report)
    compared = changes.base is not None or changes.has_baseline
    standing: dict[int, list[Item]] = {}
    for item in changes.told:
        for occurrence in item.occurrences:
            if occurrence.result is not None:
                standing.setdefault(id(occurrence.result), []).append(item)
    order = {id(item): position for position, item in enumerate(changes.told)}

    def rank(result: CaseResult) -> tuple[int, str]:
        told = standing.get(id(result), ())
        return (min((order[id(item)] for item in told), default=len(order)), result.case.id)

    ordered = sorted(report.results, key=rank)
    pictured = sum(_has_pictures(result) for result in ordered)
    short: list[Data] = []
    full: list[Data] = []
    left = MOST_PICTURED
    for result in ordered:
        told = standing.get(id(result), [])
        pictures = left > 0
        left -= _has_pictures(result)
        short.append(_short(result, told, known, compared))
        full.append(_full(result, told, known, links, sources, pictures))
    return short, full, max(0, pictured - MOST_PICTURED)


def _has_pictures(result: CaseResult) -> bool:
    return any(finding.evidence and finding.evidence.maps for check in result.checks for finding in check.findings)


def _short(result: CaseResult, told: Sequence[Item], known: Mapping[str, Target], compared: bool) -> Data:
    case = result.case
    lead = told[0] if told else None
    headline = wording.headline(lead) if lead else ""
    if not headline and result.outcome is Outcome.SKIPPED:
        headline = wording.occurrence_headline(Occurrence(result=result), result.outcome)
    place = aggregate.location(lead, dict(known)) if lead else None
    classes = [item.classification.value for item in told if item.failing or item.classification in _SHOWN]
    classes = [each for each in classes if compared or each != Classification.UNCLASSIFIED.value]
    return {
        "id": text.clean(case.id),
        "target": text.one_line(case.target),
        "name": text.one_line(case.name),
        "device": text.one_line(case.device, 40),
        "dtype": text.one_line(case.dtype, 40),
        "outcome": result.outcome.value,
        "class": classes[0] if classes else "",
        "headline": text.cut(headline, 200),
        "checks": sorted({each.check for each in result.checks}),
        "bad": sorted({item.check for item in told if item.check}),
        "rules": sorted({item.rule for item in told if item.rule}),
        "seconds": _plain(round(result.seconds, 4)) or 0.0,
        "place": wording.place_text(place, known[case.target].package if case.target in known else ""),
        "error": max((_error(item) for item in told), default=0.0),
    }


_SHOWN = (Classification.EXPECTED, Classification.INCONCLUSIVE)


def _error(item: Item) -> float:
    """The largest error among an item's entries, relative to what was allowed."""
    ratios = [0.0]
    for occurrence in item.occurrences:
        evidence = occurrence.finding.evidence if occurrence.finding else None
        for entry in evidence.entries if evidence else ():
            ratio = entry.error / entry.tolerance if entry.tolerance else math.inf
            ratios.append(ratio if math.isfinite(ratio) else 1e300)
    return max(ratios)


def _full(
    result: CaseResult,
    told: Sequence[Item],
    known: Mapping[str, Target],
    links: Links,
    sources: Mapping[str, str],
    pictures: bool,
) -> Data:
    case = result.case
    command = messages.reproduction(case)
    crash = result.crash
    whole = Occurrence(result=result)
    target = known.get(case.target)
    own = result.location or (target.location if target else None)
    return {
        "reference": f"inputs {messages.SOURCES[case.source]}: {wording.reference_text(case)}",
        "test": text.one_line(case.test_id, 400),
        "place": _place(own, links, target.package if target else ""),
        "tensors": [
            f"{side} {text.one_line(tensor.name, 60)}: {text.shape(tensor.shape)} {tensor.dtype}, {tensor.layout}, "
            f"{tensor.device}{', requires grad' if tensor.requires_grad else ''}"
            for side, tensors in (("input", result.inputs), ("output", result.outputs))
            for tensor in tensors[:40]
        ],
        "facts": wording.facts(whole),
        "ended": wording.occurrence_headline(whole, result.outcome) if crash or not result.checks else "",
        "output": text.tail(crash.output_tail, 40, 8000) if crash else "",
        "command": "" if text.has_hidden(command) else command,
        "checks": [_check(each, result, told, known, links, sources, pictures) for each in _by_weight(result.checks)],
    }


def _by_weight(checks: Sequence[CheckResult]) -> Sequence[CheckResult]:
    order = [*aggregate.BAD, Outcome.INCONCLUSIVE, Outcome.UNEXPECTED_PASS, Outcome.EXPECTED_FAILURE, Outcome.PASSED]
    weight = {outcome: 0 if outcome in aggregate.BAD else 1 + order.index(outcome) for outcome in order}
    return sorted(checks, key=lambda each: weight.get(each.outcome, 99))


def _check(
    check: CheckResult,
    result: CaseResult,
    told: Sequence[Item],
    known: Mapping[str, Target],
    links: Links,
    sources: Mapping[str, str],
    pictures: bool,
) -> Data:
    package = known[result.case.target].package if result.case.target in known else ""
    mine = [item for item in told if item.check == check.check and any(o.check is check for o in item.occurrences)]
    record: Data = {
        "check": text.one_line(check.check, 60),
        "outcome": check.outcome.value,
        "word": messages.OUTCOMES[check.outcome],
        "seconds": text.duration(check.seconds),
        "class": wording.CLASSES[mine[0].classification] if mine and mine[0].failing and mine[0].because else "",
        "because": text.one_line(mine[0].because) if mine else "",
        "reason": text.one_line(messages.reason_text(check.reason, check.details)) if check.reason else "",
        "notes": [text.one_line(messages.note_text(note)) for note in check.notes],
        "findings": [
            _finding(each, _where(each, result, check, known), package, links, sources, pictures)
            for each in check.findings[:12]
        ],
        "more": max(0, len(check.findings) - 12),
    }
    if check.evidence is not None and not check.findings:
        record["facts"] = [text.one_line(fact) for fact in wording.evidence_facts(check.evidence)]
        record["evidence"] = _evidence(check.evidence, Occurrence(result=result, check=check), pictures)
    return record


def _where(finding: Finding, result: CaseResult, check: CheckResult, known: Mapping[str, Target]) -> Location | None:
    if finding.location is not None:
        return finding.location
    item = Item(
        target=result.case.target,
        check=check.check,
        kind=finding.kind,
        rule=finding.rule,
        severity=finding.severity,
        outcome=check.outcome,
        occurrences=(Occurrence(result=result, check=check, finding=finding),),
    )
    return aggregate.location(item, dict(known))


def _finding(
    finding: Finding,
    place: Location | None,
    package: str,
    links: Links,
    sources: Mapping[str, str],
    pictures: bool,
) -> Data:
    record: Data = {
        "headline": text.one_line(messages.headline(finding)),
        "rule": text.one_line(finding.rule, 20),
        "severity": finding.severity.value,
        "certainty": messages.CERTAINTIES[finding.certainty],
        "place": _place(place, links, package),
        "facts": [text.one_line(fact, 600) for fact in wording.finding_facts(finding) if fact],
        "source": _source(place, sources),
    }
    if finding.evidence is not None:
        record["evidence"] = _evidence(finding.evidence, Occurrence(finding=finding), pictures)
    return record


def _place(place: Location | None, links: Links, package: str) -> Data | None:
    if place is None:
        return None
    return {
        "text": wording.place_text(place, package),
        "symbol": text.one_line(place.symbol, 100),
        "url": blob_url(links, place),
    }


def _source(place: Location | None, sources: Mapping[str, str]) -> Data | None:
    """The lines around a place, with those to blame."""
    if place is None or place.path not in sources:
        return None
    lines = sources[place.path].splitlines()
    last = min(place.end_line or place.line, len(lines))
    first = max(1, place.line - _CONTEXT)
    shown = lines[first - 1 : min(last + _CONTEXT, first + _MOST_SOURCE)]
    if not shown or place.line > len(lines):
        return None
    return {
        "path": text.one_line(place.path),
        "first": first,
        "blamed": [place.line, last],
        "lines": [text.clean(line.expandtabs(4))[:300] for line in shown],
    }


def _evidence(evidence: Evidence, occurrence: Occurrence, pictures: bool) -> Data:
    left, right = wording.kind_of_input(occurrence)
    record: Data = {}
    if evidence.entries:
        record["entries"] = {"input": left, "output": right, "rows": list(_entries(evidence))}
    if evidence.maps and pictures:
        record["maps"] = [encode_map(each) for each in evidence.maps[:4] if each.rows * each.columns > 1]
    if evidence.profiles and pictures:
        record["profiles"] = [
            {
                "side": text.one_line(each.side, 20),
                "size": each.size,
                "values": [_rounded(value) for value in each.values],
            }
            for each in evidence.profiles[:4]
        ]
    if evidence.steps:
        record["steps"] = [
            [_rounded(each.step), _rounded(each.numerical), _rounded(each.error_bar), _rounded(each.analytical)]
            for each in evidence.steps[:64]
        ]
    if evidence.spreads:
        record["spreads"] = [
            {"text": wording.spread_text(each), "sizes": [_rounded(size) for size in each.sizes[:256]]}
            for each in evidence.spreads[:8]
        ]
    return record


def _entries(evidence: Evidence) -> Iterable[Data]:
    for entry in evidence.entries[:16]:
        split = isinstance(entry.analytical, complex) or isinstance(entry.numerical, complex)
        numbers = () if split else (entry.analytical, entry.numerical, entry.error_bar, entry.tolerance)
        yield {
            "input": text.index(entry.input_index),
            "output": text.index(entry.output_index),
            "analytical": text.aligned(entry.analytical),
            "numerical": text.aligned(entry.numerical),
            "bar": text.number(entry.error_bar, 1) if entry.error_bar else "",
            "error": text.number(entry.error, 3),
            "tolerance": text.number(entry.tolerance, 2),
            "numbers": [_rounded(value) for value in numbers if not isinstance(value, complex)],
        }


def _rounded(value: float) -> float | None:
    # the largest numbers there are round to infinity
    return next((each for each in (float(f"{value:.5g}"), value) if math.isfinite(each)), None)
