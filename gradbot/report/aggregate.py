"""What follows from a report: the things to tell, sorted by importance, counts, coverage, capabilities, the verdict.

An `Item` is one thing to tell: all occurrences of one kind of finding in one check of one target, over its cases,
devices and dtypes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from gradbot.errors import ExitCode
from gradbot.model import (
    Capability,
    CaseResult,
    Certainty,
    CheckName,
    CheckResult,
    Finding,
    Location,
    Outcome,
    Report,
    Severity,
    Target,
)
from gradbot.rules import RULES

FAILURES = frozenset({Outcome.FAILED})
ERRORS = frozenset({Outcome.ERRORED, Outcome.CRASHED, Outcome.TIMED_OUT})
BAD = FAILURES | ERRORS
FAIL_ON = ("failures", "new-failures", "errors", "nothing")
"""What makes a run fail. `errors` are user code that raised, died or hung; `failures` are those and wrong gradients."""


class Classification(str, Enum):
    """How an item stands against the base."""

    NEW = "new"
    KNOWN = "known"
    FIXED = "fixed"
    FLAKY = "flaky"
    EXPECTED = "expected"
    INCONCLUSIVE = "inconclusive"
    UNCHECKED = "unchecked"
    MISSING = "missing"
    UNCLASSIFIED = "unclassified"  # there is nothing to compare with


class TargetState(str, Enum):
    """How a target stands over all its cases: the first of these that holds."""

    WRONG = "wrong"
    BROKEN = "broken"  # raised, died or hung
    NONDETERMINISTIC = "nondeterministic"
    UNEXPECTED_PASS = "unexpected pass"
    INCONCLUSIVE = "inconclusive"
    EXPECTED = "expected failure"
    RIGHT = "right"
    UNCHECKED = "not checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One place where an item was seen. `check` is None where the case ended as a whole, `result` across cases."""

    result: CaseResult | None = None
    check: CheckResult | None = None
    finding: Finding | None = None

    @property
    def device(self) -> str:
        return self.result.case.device if self.result else ""

    @property
    def dtype(self) -> str:
        return self.result.case.dtype if self.result else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing to tell. `because` says in words why it has its classification, where there is something to say.

    `new` tells whether it counts as new for `new-failures`: also where it is flaky or there is no base.
    """

    target: str
    check: str
    kind: str
    rule: str
    severity: Severity
    outcome: Outcome
    occurrences: tuple[Occurrence, ...]
    classification: Classification = Classification.UNCLASSIFIED
    because: str = ""
    new: bool = True

    @property
    def lead(self) -> Occurrence:
        """The occurrence that shows most."""
        return self.occurrences[0]

    @property
    def failing(self) -> bool:
        """Whether it makes a run fail."""
        return self.outcome in BAD

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(sorted({each.device for each in self.occurrences if each.device}))

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(sorted({each.dtype for each in self.occurrences if each.dtype}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Capabilities: target x check x device, the worst outcome over cases.

    A cell is "wrong", "broken", "inconclusive", "expected", "ok", "unsupported" or "skipped"; what was not tried is
    not there.
    """

    targets: tuple[str, ...]
    checks: tuple[str, ...]
    devices: tuple[str, ...]
    cells: dict[tuple[str, str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The counts that a run is judged by, and its exit code."""

    states: dict[TargetState, int]
    targets: int
    checked: int
    cases: int
    checks: int
    failures: int  # items: wrong gradients and broken contracts
    errors: int  # items: raised, died, hung
    new: int  # of both
    missing_shards: tuple[str, ...]
    interrupted: bool
    exit_code: ExitCode

    @property
    def right(self) -> bool:
        """Whether nothing is wrong and something was checked, whatever makes the run fail."""
        return not (self.failures or self.errors or self.missing_shards or self.interrupted) and self.checked > 0


_STATES = ("wrong", "broken", "inconclusive", "expected", "ok", "unsupported", "skipped")
_STATE_OF = {
    Outcome.PASSED: "ok",
    Outcome.UNEXPECTED_PASS: "ok",
    Outcome.FAILED: "wrong",
    Outcome.ERRORED: "broken",
    Outcome.CRASHED: "broken",
    Outcome.TIMED_OUT: "broken",
    Outcome.INCONCLUSIVE: "inconclusive",
    Outcome.EXPECTED_FAILURE: "expected",
    Outcome.UNSUPPORTED: "unsupported",
    Outcome.SKIPPED: "skipped",
}
_MADE = BAD | {Outcome.PASSED, Outcome.INCONCLUSIVE, Outcome.EXPECTED_FAILURE, Outcome.UNEXPECTED_PASS}


def items(report: Report) -> tuple[Item, ...]:
    """Everything to tell: findings, cases that ended badly, inconclusive and expected ones, unexpected passes.

    Sorted by importance. Skipped cases and unchecked targets are not among them: see `unchecked`.
    """
    groups: dict[tuple[str, str, str, Outcome], list[Occurrence]] = {}
    for result in report.results:
        for check, kind, outcome, occurrence in _occurrences(result):
            groups.setdefault((result.case.target, check, kind, outcome), []).append(occurrence)
    for finding in report.findings:
        target = str(finding.details.get("target", ""))
        outcome = Outcome.FAILED if finding.severity is Severity.ERROR else Outcome.PASSED
        groups.setdefault((target, finding.check, finding.kind, outcome), []).append(Occurrence(finding=finding))
    return sort_items(_item(key, group) for key, group in groups.items())


def _occurrences(result: CaseResult) -> Iterable[tuple[str, str, Outcome, Occurrence]]:
    told = False
    for check in result.checks:
        for finding in check.findings:
            outcome = check.outcome
            if outcome is Outcome.INCONCLUSIVE and finding.severity is Severity.NOTE and check.reason:
                continue  # the note says of the point what the reason says of the check
            if outcome in BAD and finding.severity is not Severity.ERROR:
                outcome = Outcome.PASSED
            told = told or outcome in BAD
            yield check.check, finding.kind, outcome, Occurrence(result=result, check=check, finding=finding)
        silent = check.outcome not in (Outcome.PASSED, Outcome.UNSUPPORTED, Outcome.SKIPPED)
        if silent and not any(finding.severity is Severity.ERROR for finding in check.findings):
            told = told or check.outcome in BAD
            yield check.check, check.reason, check.outcome, Occurrence(result=result, check=check)
    ended = result.crash is not None or result.outcome in ERRORS
    whole = ended or not result.checks
    if whole and not (told and result.crash is None) and result.outcome not in (Outcome.PASSED, Outcome.SKIPPED):
        stage = result.crash.stage if result.crash else ""
        check_name = stage if stage in _CHECK_ORDER else ""
        if result.outcome is not Outcome.UNSUPPORTED:
            yield check_name, result.reason, result.outcome, Occurrence(result=result)


def _item(key: tuple[str, str, str, Outcome], group: Sequence[Occurrence]) -> Item:
    target, check, kind, outcome = key
    ordered = tuple(sorted(group, key=_telling))
    finding = ordered[0].finding
    severity = finding.severity if finding else Severity.ERROR if outcome in BAD else Severity.NOTE
    rule = finding.rule if finding else RULES[kind].id if kind in RULES else ""
    return Item(
        target=target, check=check, kind=kind, rule=rule, severity=severity, outcome=outcome, occurrences=ordered
    )


def _telling(occurrence: Occurrence) -> tuple[object, ...]:
    """Sorts first what has a diagnosis, pictures, certainty and a plain device."""
    finding, result = occurrence.finding, occurrence.result
    case_id = result.case.id if result else ""
    if finding is None:
        return (1, 1, 1, 1, not (result and result.crash), case_id, 0, 0)
    evidence = finding.evidence
    return (
        finding.diagnosis is None,
        evidence is None or not evidence.entries,
        finding.certainty is not Certainty.CERTAIN,
        occurrence.device != "cpu",
        0,
        case_id,
        finding.output or 0,
        finding.input or 0,
    )


_CLASS_ORDER = (
    Classification.NEW,
    Classification.UNCLASSIFIED,
    Classification.FLAKY,
    *(each for each in Classification if each.value not in ("new", "unclassified", "flaky")),
)
_CHECK_ORDER = {name.value: position for position, name in enumerate(CheckName)}
_GROUP_ORDER = {"1": 0, "4": 1, "8": 2, "3": 3, "2": 4, "7": 5, "6": 6, "5": 7}


def sort_items(some: Iterable[Item]) -> tuple[Item, ...]:
    """Most important first: what fails and is new; wrong values, contracts, errors; certain before likely."""
    return tuple(sorted(some, key=_importance))


def _importance(item: Item) -> tuple[object, ...]:
    finding = item.lead.finding
    return (
        not item.failing,
        not item.new,
        _CLASS_ORDER.index(item.classification),
        list(Severity).index(item.severity),
        _GROUP_ORDER.get(item.rule[2:3], 5),
        finding is not None and finding.certainty is not Certainty.CERTAIN,
        _CHECK_ORDER.get(item.check, len(_CHECK_ORDER)),
        -len(item.devices),
        item.target,
        item.kind,
        item.outcome.value,
    )


def location(item: Item, targets: dict[str, Target]) -> Location | None:
    """Where to look: the finding's place, else the method at fault, else the case's or the target's own place."""
    lead = item.lead
    if lead.finding is not None and lead.finding.location is not None:
        return lead.finding.location
    target = targets.get(item.target)
    if target is not None:
        for method in _METHODS.get(item.check, ("backward", "autograd")):
            if method in target.methods:
                return target.methods[method]
    if lead.result is not None and lead.result.location is not None:
        return lead.result.location
    return target.location if target is not None else None


_METHODS = {
    CheckName.FORWARD_AD.value: ("jvp", "backward", "autograd"),
    CheckName.BATCHED_FORWARD_GRAD.value: ("vmap", "jvp"),
    CheckName.BATCHED_GRAD.value: ("vmap", "backward", "autograd"),
    CheckName.REGISTRATION.value: ("fake", "autograd", "impl", "define"),
    CheckName.SIDE_EFFECTS.value: ("forward", "impl", "backward"),
}


def targets_by_id(report: Report) -> dict[str, Target]:
    """The report's targets by id and by alias."""
    known = {alias: target for target in report.targets for alias in target.aliases}
    known.update({target.id: target for target in report.targets})
    return known


def target_states(report: Report, told: Sequence[Item]) -> dict[str, TargetState]:
    """How every target stands that was discovered, checked or named as unchecked, in order of their names."""
    states: dict[str, set[TargetState]] = {target.id: set() for target in report.targets}
    states.update({each.target: set() for each in report.unchecked})
    for result in report.results:
        held = states.setdefault(result.case.target, set())
        if any(check.outcome is Outcome.PASSED for check in result.checks):
            held.add(TargetState.RIGHT)
    for item in told:
        if item.target:
            states.setdefault(item.target, set()).update(_item_states(item))
    order = list(TargetState)
    return {name: min(held, key=order.index, default=TargetState.UNCHECKED) for name, held in sorted(states.items())}


def _item_states(item: Item) -> tuple[TargetState, ...]:
    if item.outcome in ERRORS:
        return (TargetState.BROKEN,)
    if item.outcome is Outcome.FAILED:
        return (TargetState.NONDETERMINISTIC if item.kind in NONDETERMINISM else TargetState.WRONG,)
    if item.outcome is Outcome.UNEXPECTED_PASS:
        return (TargetState.UNEXPECTED_PASS,)
    if item.outcome is Outcome.EXPECTED_FAILURE:
        return (TargetState.EXPECTED,)
    if item.outcome is Outcome.INCONCLUSIVE:
        return (TargetState.INCONCLUSIVE,)
    return ()


NONDETERMINISM = frozenset({"nondeterministic", "nondeterministic_forward"})


def was_made(check: CheckResult) -> bool:
    """Whether a check came to a result; unsupported and skipped ones were not made."""
    return check.outcome in _MADE


def checks_made(report: Report) -> int:
    """How many checks came to a result, over all cases."""
    return sum(was_made(check) for result in report.results for check in result.checks)


def missing_shards(report: Report) -> tuple[str, ...]:
    """Expected shards that never reported."""
    return tuple(name for name in report.shard.expected if name not in report.shards_seen)


def interrupted_shards(report: Report) -> tuple[str, ...]:
    """Shards of a merged report whose newest run was cut short."""
    return tuple(each.name for each in report.shard_runs if each.interrupted)


def matrix(report: Report) -> Matrix:
    """The capability of every target in every check on every device: the worst outcome over cases."""
    cells: dict[tuple[str, str, str], str] = {}
    for result in report.results:
        for check in result.checks:
            state = _STATE_OF[check.outcome]
            if check.capability is Capability.WRONG and state == "ok":
                state = "wrong"
            key = (result.case.target, check.check, result.case.device)
            cells[key] = min(cells.get(key, "skipped"), state, key=_STATES.index)
        if result.crash is not None and result.crash.stage in _CHECK_ORDER:
            key = (result.case.target, result.crash.stage, result.case.device)
            cells[key] = min(cells.get(key, "skipped"), "broken", key=_STATES.index)
    names = sorted({target for target, _, _ in cells})
    checks = sorted({check for _, check, _ in cells}, key=lambda name: (_CHECK_ORDER.get(name, 99), name))
    devices = sorted({device for _, _, device in cells})
    return Matrix(targets=tuple(names), checks=tuple(checks), devices=tuple(devices), cells=cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotChecked:
    """A target or a case that was not checked, and why, as a code of `messages.REASONS` with its details."""

    target: str
    case: str
    reason: str
    details: dict[str, str | int | float | bool | None]


def unchecked(report: Report) -> tuple[NotChecked, ...]:
    """Targets without any check made, and single cases that were skipped, sorted by name."""
    found = [NotChecked(target=u.target, case="", reason=u.reason, details=dict(u.details)) for u in report.unchecked]
    told = {each.target for each in found}
    ran = {result.case.target for result in report.results}
    found += [
        NotChecked(target=target.id, case="", reason="no_case", details={})
        for target in report.targets
        if target.id not in ran and target.id not in told
    ]
    for result in report.results:
        nothing = result.outcome is Outcome.UNSUPPORTED and not any(check.outcome in _MADE for check in result.checks)
        if result.outcome is Outcome.SKIPPED or nothing:
            reason, details = result.reason or "not_supported", dict(result.details)
            found.append(NotChecked(target=result.case.target, case=result.case.id, reason=reason, details=details))
    return tuple(sorted(found, key=lambda each: (each.target, each.case)))


def verdict(report: Report, fail_on: str = "failures", told: Sequence[Item] | None = None) -> Verdict:
    """The counts of a run and its exit code.

    `fail_on` is one of FAIL_ON. `told` are the report's items where they were compared with a base; without them
    every failure counts as new. A shard that never reported and an interrupted run fail unless `fail_on` is `nothing`.
    """
    if fail_on not in FAIL_ON:
        raise ValueError(f"fail_on is {fail_on!r}; expected one of {', '.join(FAIL_ON)}")
    told = items(report) if told is None else told
    states = target_states(report, told)
    failures = sum(item.outcome in FAILURES for item in told)
    errors = sum(item.outcome in ERRORS for item in told)
    new = sum(item.failing and item.new for item in told)
    missing = missing_shards(report)
    made = checks_made(report)
    bad = {"failures": failures + errors, "new-failures": new, "errors": errors, "nothing": 0}[fail_on]
    incomplete = bool(missing or report.run.interrupted) and fail_on != "nothing"
    if bad or incomplete:
        code = ExitCode.WRONG
    elif not made and not errors and not failures:
        code = ExitCode.NOTHING_CHECKED
    else:
        code = ExitCode.RIGHT
    return Verdict(
        states={state: sum(each is state for each in states.values()) for state in TargetState},
        targets=len(states),
        checked=sum(state is not TargetState.UNCHECKED for state in states.values()),
        cases=len(report.results),
        checks=made,
        failures=failures,
        errors=errors,
        new=new,
        missing_shards=missing,
        interrupted=report.run.interrupted,
        exit_code=code,
    )


def reclassified(item: Item, classification: Classification, because: str = "", *, new: bool) -> Item:
    """The item with its standing against a base."""
    return replace(item, classification=classification, because=because, new=new)
