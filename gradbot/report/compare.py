"""A run against the run on its base, and against what was accepted: what is new, known, fixed, flaky, and what changed.

A failure is called known or flaky only with the evidence for it, and new only where the base shows that it did not
fail there; in between it is unclassified, which counts as new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gradbot import messages
from gradbot.model import CaseResult, CheckResult, Finding, Outcome, Report, Run
from gradbot.report import aggregate, baseline, fingerprint, text
from gradbot.report.aggregate import BAD, ERRORS, Classification, Item, Occurrence
from gradbot.report.baseline import Baseline, Entry

NEW, KNOWN, UNCLASSIFIED = Classification.NEW, Classification.KNOWN, Classification.UNCLASSIFIED
_SLOWER = 2.0
_SLOWER_BY = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityChange:
    """One cell of the capability matrix that is another one than on the base; states as in `aggregate.Matrix`."""

    target: str
    check: str
    device: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slower:
    """A case that takes at least twice as long as on the base, and a second more. Seconds."""

    case: str
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Everything to tell of a run, classified, and what changed since its base.

    `base` is None where there was none. `renamed` holds (before, after).
    """

    told: tuple[Item, ...]
    fixed: tuple[Item, ...] = ()
    base: Run | None = None
    renamed: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()
    no_longer_checked: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    capabilities: tuple[CapabilityChange, ...] = ()
    slower: tuple[Slower, ...] = ()
    stale: tuple[Entry, ...] = ()
    has_baseline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    classification: Classification
    because: str
    new: bool


def compare(head: Report, base: Report | None = None, accepted: Baseline | None = None) -> Changes:
    """Classify everything in `head` against the report of its base, the accepted failures, or both."""
    same = fingerprint.renames(fingerprint.marks(base), fingerprint.marks(head)) if base is not None else {}
    matched = fingerprint.cases(base, head, same) if base is not None else {}
    known = _Base(base, same, matched) if base is not None else None
    holds = baseline.holds(accepted, head) if accepted is not None else None
    split: list[Item] = []
    for item in aggregate.items(head):
        groups: dict[_Standing, list[Occurrence]] = {}
        for occurrence in item.occurrences:
            groups.setdefault(_standing(item, occurrence, known, holds), []).append(occurrence)
        split += _merged(item, groups)
    told = aggregate.sort_items(split)
    stale = baseline.stale(accepted, head) if accepted is not None else ()
    if base is None or known is None:
        return Changes(told=told, stale=stale, has_baseline=accepted is not None)
    states_before = aggregate.target_states(base, aggregate.items(base))
    states_after = aggregate.target_states(head, told)
    unchecked = aggregate.TargetState.UNCHECKED
    back = {old: new for new, old in same.items()}
    were = [name for name, state in states_before.items() if state is not unchecked]
    are = {name for name, state in states_after.items() if state is not unchecked}
    return Changes(
        told=told,
        fixed=_fixed(head, base, matched),
        base=base.run,
        renamed=tuple((old, new) for new, old in sorted(same.items()) if old != new),
        added=tuple(sorted(name for name in are if same.get(name) not in were)),
        no_longer_checked=tuple(n for n in were if n in back and back[n] not in are and back[n] in states_after),
        removed=tuple(name for name in were if name not in back),
        capabilities=_capabilities(head, base, same),
        slower=_slower(head, matched),
        stale=stale,
        has_baseline=accepted is not None,
    )


def _merged(item: Item, groups: Mapping[_Standing, list[Occurrence]]) -> Iterable[Item]:
    """One item a classification; the reasons of its occurrences, each once."""
    by_class: dict[tuple[Classification, bool], list[tuple[str, list[Occurrence]]]] = {}
    for standing, occurrences in groups.items():
        by_class.setdefault((standing.classification, standing.new), []).append((standing.because, occurrences))
    for (classification, new), parts in by_class.items():
        because = text.listing(dict.fromkeys(reason for reason, _ in parts if reason), most=3)
        members = {id(each) for _, occurrences in parts for each in occurrences}
        kept = tuple(each for each in item.occurrences if id(each) in members)
        split = replace(item, occurrences=kept)
        yield aggregate.reclassified(split, classification, because, new=new)


def _standing(item: Item, occurrence: Occurrence, base: _Base | None, holds: object) -> _Standing:
    if item.outcome in (Outcome.EXPECTED_FAILURE, Outcome.UNEXPECTED_PASS):
        settings = occurrence.result.case.settings if occurrence.result else None
        declared = f"declared: {settings.reason}" if settings is not None and settings.reason else "declared"
        return _Standing(classification=Classification.EXPECTED, because=declared, new=False)
    if item.outcome is Outcome.INCONCLUSIVE:
        return _Standing(classification=Classification.INCONCLUSIVE, because="", new=False)
    standing = _Standing(classification=UNCLASSIFIED, because="", new=True)
    if base is not None:
        standing = base.standing(item, occurrence)
    if isinstance(holds, set) and item.failing and standing.classification is not KNOWN:
        if baseline.occurrence_key(item, occurrence) in holds:
            standing = _Standing(classification=KNOWN, because="accepted in the baseline", new=False)
        elif standing.classification is UNCLASSIFIED:
            standing = _Standing(classification=NEW, because="not in the baseline", new=True)
    tries = occurrence.result.attempts if occurrence.result else None
    if item.failing and tries is not None and 0 < tries.failures < tries.runs:
        often = f"failed in {tries.failures} of {tries.runs} runs"
        because = "; ".join(part for part in (often, standing.because) if part)
        return _Standing(classification=Classification.FLAKY, because=because, new=standing.new)
    return standing


class _Base:
    """The base's report, indexed for the questions that `standing` asks."""

    def __init__(self, report: Report, same: Mapping[str, str], matched: Mapping[str, CaseResult]) -> None:
        self._same = same
        self._matched = matched
        self._discovered = {target.id for target in report.targets} | {each.target for each in report.unchecked}
        self._checked = {result.case.target for result in report.results}
        self._ran: dict[tuple[str, str], set[str]] = {}
        self._failed: dict[tuple[str, str, str], dict[str, Occurrence]] = {}
        self._across: set[tuple[str, str, str]] = set()
        for result in report.results:
            for check in result.checks:
                if check.outcome in BAD or check.outcome is Outcome.PASSED:
                    self._ran.setdefault((result.case.target, check.check), set()).add(result.case.device)
        for item in aggregate.items(report):
            for occurrence in item.occurrences:
                if occurrence.result is None:
                    self._across.add((item.target, item.check, item.kind))
                    continue
                key = (item.target, item.check, _kind(item, occurrence))
                self._failed.setdefault(key, {})[occurrence.result.case.id] = occurrence

    def standing(self, item: Item, occurrence: Occurrence) -> _Standing:
        target = self._same.get(item.target)
        if occurrence.result is None:
            there = (target or item.target, item.check, item.kind) in self._across
            return _known("also on the base") if there else _new("not on the base")
        if target is None:
            if item.target in self._discovered:
                return _unclassified("not checked on the base")
            return _new("the target is new")
        if target not in self._checked:
            return _unclassified("not checked on the base")
        failed = self._failed.get((target, item.check, _kind(item, occurrence)), {})
        before = self._matched.get(occurrence.result.case.id)
        if before is not None:
            return self._same_case(item, occurrence, before, failed)
        device = occurrence.device
        elsewhere = {each.device for each in failed.values()}
        if device in elsewhere:
            return _known("also fails on the base, in other cases")
        if elsewhere and device not in self._ran.get((target, item.check), set()):
            return _known(f"also fails on the base, on {text.listing(sorted(elsewhere))}")
        return _unclassified("the base did not run this case")

    def _same_case(
        self, item: Item, occurrence: Occurrence, before: CaseResult, failed: Mapping[str, Occurrence]
    ) -> _Standing:
        there = failed.get(before.case.id)
        if there is not None:
            was, now = _pattern(there.finding), _pattern(occurrence.finding)
            other = f", there as: {was}" if was and was != now else ""
            word = "also fails on the base" if item.failing else "also on the base"
            return _known(f"{word}{other}")
        check = next((each for each in before.checks if each.check == item.check), None)
        if check is not None and check.outcome in (Outcome.PASSED, Outcome.UNEXPECTED_PASS):
            return _new("passes on the base" if item.failing else "not on the base")
        if check is not None and check.outcome is Outcome.UNSUPPORTED:
            return _new("not supported on the base")
        if not item.check and before.outcome is Outcome.PASSED:
            return _new("passes on the base")
        if item.outcome in ERRORS and before.outcome not in BAD:
            return _new(f"on the base it was {messages.OUTCOMES[before.outcome]}")
        outcome = check.outcome if check is not None else before.outcome
        return _unclassified(f"on the base this check {_ended(outcome)}")


def _kind(item: Item, occurrence: Occurrence) -> str:
    return item.kind if occurrence.finding is not None else item.outcome.value


def _pattern(finding: Finding | None) -> str:
    return messages.headline(finding) if finding is not None and finding.diagnosis is not None else ""


def _ended(outcome: Outcome) -> str:
    words = {Outcome.FAILED: "failed otherwise", Outcome.PASSED: "was not made", Outcome.SKIPPED: "was skipped"}
    return words.get(outcome, f"ended as {outcome.value.replace('_', ' ')}")


def _known(because: str) -> _Standing:
    return _Standing(classification=KNOWN, because=because, new=False)


def _new(because: str) -> _Standing:
    return _Standing(classification=NEW, because=because, new=True)


def _unclassified(because: str) -> _Standing:
    return _Standing(classification=UNCLASSIFIED, because=because, new=True)


def _fixed(head: Report, base: Report, matched: Mapping[str, CaseResult]) -> tuple[Item, ...]:
    """The base's failures whose very check passes now in the very case."""
    now = {before.case.id: result for result in head.results if (before := matched.get(result.case.id)) is not None}
    found = []
    for item in aggregate.items(base):
        kept = tuple(each for each in item.occurrences if item.failing and _passes(each, item.check, now))
        if kept:
            fixed = replace(item, occurrences=kept)
            found.append(aggregate.reclassified(fixed, Classification.FIXED, "passes now", new=False))
    return tuple(found)


def _passes(occurrence: Occurrence, check: str, now: Mapping[str, CaseResult]) -> bool:
    after = now.get(occurrence.result.case.id) if occurrence.result else None
    if after is None:
        return False
    if not check:
        return after.outcome is Outcome.PASSED
    return any(each.check == check and _clean(each) for each in after.checks)


def _clean(check: CheckResult) -> bool:
    return check.outcome in (Outcome.PASSED, Outcome.UNEXPECTED_PASS)


def _capabilities(head: Report, base: Report, same: Mapping[str, str]) -> tuple[CapabilityChange, ...]:
    before, after = aggregate.matrix(base).cells, aggregate.matrix(head).cells
    found = []
    for (target, check, device), state in after.items():
        was = before.get((same.get(target, target), check, device))
        if was is not None and was != state:
            found.append(CapabilityChange(target=target, check=check, device=device, before=was, after=state))
    return tuple(sorted(found, key=lambda each: (each.target, each.check, each.device)))


def _slower(head: Report, matched: Mapping[str, CaseResult]) -> tuple[Slower, ...]:
    found = []
    for result in head.results:
        before = matched.get(result.case.id)
        if before is None or before.outcome in ERRORS or result.outcome in ERRORS:
            continue
        if result.seconds >= _SLOWER * before.seconds and result.seconds - before.seconds >= _SLOWER_BY:
            found.append(Slower(case=result.case.id, before=before.seconds, after=result.seconds))
    return tuple(sorted(found, key=lambda each: each.before - each.after))
