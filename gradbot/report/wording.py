"""Items in words: which of `messages`' sentences to say, in which order, for every writer alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gradbot import messages
from gradbot.model import (
    Case,
    CaseResult,
    Crash,
    Diagnosis,
    Evidence,
    Finding,
    Location,
    Outcome,
    Scalar,
    Severity,
    Spread,
)
from gradbot.report import text
from gradbot.report.aggregate import Classification, Item, Occurrence
from gradbot.rules import BY_ID

CLASSES = {
    Classification.NEW: "new",
    Classification.KNOWN: "known",
    Classification.FIXED: "fixed",
    Classification.FLAKY: "flaky",
    Classification.EXPECTED: "expected",
    Classification.INCONCLUSIVE: "inconclusive",
    Classification.UNCHECKED: "unchecked",
    Classification.MISSING: "missing",
    Classification.UNCLASSIFIED: "no base to compare with",
}


def headline(item: Item) -> str:
    """What there is to say of an item, in one line without a full stop."""
    return occurrence_headline(item.lead, item.outcome)


def occurrence_headline(occurrence: Occurrence, outcome: Outcome) -> str:
    """What there is to say of one occurrence, in one line without a full stop."""
    finding, check, result = occurrence.finding, occurrence.check, occurrence.result
    if outcome is Outcome.EXPECTED_FAILURE and check is not None and check.reason:
        return text.one_line(_ended(check.outcome, check.reason, check.details, None))
    if finding is not None:
        return text.one_line(messages.headline(finding))
    if check is not None:
        return text.one_line(_ended(check.outcome, check.reason, check.details, None))
    if result is not None:
        return text.one_line(_ended(result.outcome, result.reason, result.details, result.crash))
    return messages.OUTCOMES[outcome]


def _ended(outcome: Outcome, reason: str, details: Mapping[str, Scalar], crash: Crash | None) -> str:
    if crash is not None:
        return messages.crash_text(crash)
    if reason:
        return messages.reason_text(reason, details)
    return messages.OUTCOMES[outcome]


def where(item: Item) -> str:
    """Dtypes and devices that an item was seen on: `float64 on cpu and cuda:0`."""
    dtypes, devices = text.listing(item.dtypes), text.listing(item.devices)
    return text.one_line(f"{dtypes} on {devices}" if dtypes and devices else dtypes or devices)


def certainty(item: Item) -> str:
    """How sure an item is, in words; empty where nothing is claimed."""
    if item.outcome is not Outcome.FAILED or item.lead.finding is None:
        return ""
    return messages.CERTAINTIES[item.lead.finding.certainty]


def place_text(place: Location | None, package: str = "") -> str:
    """`path:line`; a path outside the project from the package on."""
    if place is None:
        return ""
    path = text.one_line(place.path)
    inside = path.rpartition(f"/{package}/")[2] if package and path.startswith("/") else ""
    return f"{package}/{inside}:{place.line}" if inside else f"{path}:{place.line}"


def reference_text(case: Case) -> str:
    """Where a case's inputs come from, without the word for the source: `tests/cases.py:softcap#0`."""
    return text.one_line(case.reference.removeprefix(f"{case.source.value}:"), 400)


def severity(item: Item) -> str:
    """`error`, `warning` or `note`, as an item counts in this run."""
    if item.failing:
        return "error"
    return "warning" if item.severity is Severity.WARNING else "note"


def facts(occurrence: Occurrence) -> list[str]:
    """What is known beyond the headline, one sentence each."""
    said: list[str] = []
    finding, check, result = occurrence.finding, occurrence.check, occurrence.result
    if finding is not None:
        said += finding_facts(finding)
    elif check is not None and check.evidence is not None:
        said += evidence_facts(check.evidence)
    if check is not None:
        said += [messages.note_text(note) for note in check.notes]
    if result is not None:
        said += result_facts(result)
    return [text.one_line(each, 600) for each in said if each]


def finding_facts(finding: Finding) -> list[str]:
    """The numbers of a finding in sentences."""
    said = [messages.explanation(finding)]
    diagnosis = finding.diagnosis
    if diagnosis is not None and diagnosis.pattern == "compound":
        said.append(_of_compound(diagnosis, finding.check))
    elif diagnosis is not None:
        equation = messages.formula(diagnosis)
        over = entries_text(finding.evidence)
        residual = f"residual {text.number(diagnosis.residual, 2)}{f' over {over}' if over else ''}"
        whole = "This explains the whole error" if diagnosis.residual == 0 else f"This explains the error, {residual}"
        said.append(f"{equation} ({residual})" if equation else whole)
    if finding.evidence is not None:
        said += evidence_facts(replace(finding.evidence, resolution=None))  # what would have been seen was seen
    return said


def _of_compound(diagnosis: Diagnosis, check: str) -> str:
    """The pattern that most of the wrong entries follow, and how many do."""
    first, share = diagnosis.parameters.get("first"), diagnosis.parameters.get("share")
    if not isinstance(first, str) or not isinstance(share, float) or first not in messages.PATTERNS:
        return ""
    pattern = messages.diagnosis_text(replace(diagnosis, pattern=first), check)
    return f"Most wrong entries, {100 * share:.0f}%, fit one pattern: {pattern}"


def evidence_facts(evidence: Evidence) -> list[str]:
    """What evidence shows, in sentences."""
    said = []
    if evidence.wrong_entries is not None:
        of = f" of {text.count(evidence.checked_entries)}" if evidence.checked_entries is not None else ""
        verb = "is" if evidence.wrong_entries == 1 else "are"
        nothing_else = "; nothing else is" if evidence.complete and evidence.wrong_entries else ""
        said.append(f"{text.count(evidence.wrong_entries)}{of} entries {verb} wrong{nothing_else}")
    said += [
        f"Wrong in the {part.side} at {text.ranges(part.indices)} of dim {part.dim} (size {text.count(part.size)})"
        for part in evidence.slices
    ]
    said += [spread_text(each) for each in evidence.spreads]
    if evidence.resolution is not None:
        share = "" if evidence.coverage is None else f" in {evidence.coverage:.0%} of the output rows"
        seen = f"A relative error of {text.number(evidence.resolution, 2)} would have been seen{share}"
        said.append(f"{seen} ({evidence.method})" if evidence.method else seen)
    return said


def entries_text(evidence: Evidence | None) -> str:
    """The size of the Jacobian that was compared: `8,192 × 8,192 entries`."""
    if evidence is None:
        return ""
    for picture in evidence.maps:
        return f"{text.count(picture.columns)} × {text.count(picture.rows)} entries"
    return f"{text.count(evidence.checked_entries)} entries" if evidence.checked_entries else ""


def spread_text(spread: Spread) -> str:
    """How repeats differ: `backward differs by up to 3e-7 in 6 of 8 repeats`."""
    stage = spread.stage.replace("_", " ")
    if not spread.differing:
        return f"{stage}: {text.plural(spread.repeats, 'repeat')} agree bit for bit"
    relative = f" (relative {text.number(spread.relative, 2)})" if spread.relative else ""
    rate = f"; between {spread.rate_low:.0%} and {spread.rate_high:.0%} of all runs, with 95% confidence"
    seed = " under a fixed seed" if spread.fixed_seed else " without a fixed seed"
    documented = f"; {spread.documented_op} is documented as nondeterministic" if spread.documented_op else ""
    differs = f"{stage} differs by up to {text.number(spread.largest, 2)}{relative}"
    return f"{differs} in {spread.differing} of {spread.repeats} repeats{seed}{rate}{documented}"


def result_facts(result: CaseResult) -> list[str]:
    """What is to say of a case as a whole."""
    said = [messages.note_text(note) for note in result.notes]
    tries = result.attempts
    if tries is not None and 0 < tries.failures < tries.runs:
        seeds = f" (seeds {text.ranges(tries.seeds)})" if tries.seeds else ""
        said.append(f"Failed in {tries.failures} of {tries.runs} runs{seeds}")
    if result.case.settings.reason:
        said.append(f"Declared: {result.case.settings.expect or 'settings'}, because {result.case.settings.reason}")
    return said


def rule_text(item: Item) -> str:
    """The rule in one line: `GB101: the backward-mode Jacobian differs from the numerical one`."""
    rule = BY_ID.get(item.rule)
    return f"{rule.id}: {rule.summary}" if rule else text.one_line(item.rule, 20)


def kind_of_input(occurrence: Occurrence) -> tuple[str, str]:
    """Column titles of an entries table: which input and which output."""
    finding = occurrence.finding
    if finding is None:
        return "input", "output"
    return _side("input", finding.input, finding.input_name), _side("output", finding.output, finding.output_name)


def _side(word: str, number: int | None, name: str) -> str:
    if name and name != word:
        return f"{word} {text.one_line(name, 24)}"
    return word if number is None else f"{word} {number}"
