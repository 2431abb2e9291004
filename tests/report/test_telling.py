"""What follows from a report: things to tell, their order, counts, verdicts, capabilities."""

from __future__ import annotations

from dataclasses import replace

import example_run
import pytest
from hypothesis import given
from strategies import WHOLE_REPORTS, reports

from gradbot.errors import ExitCode
from gradbot.model import (
    CaseResult,
    CheckResult,
    Crash,
    Finding,
    Location,
    Outcome,
    Report,
    Run,
    Severity,
    Shard,
    Target,
    TargetKind,
    Unchecked,
)
from gradbot.report import aggregate
from gradbot.report.aggregate import Item, TargetState
from gradbot.rules import RULES

HEAD = example_run.head()


def finding(kind: str, check: str = "backward", **more: object) -> Finding:
    return Finding(rule=RULES[kind].id, kind=kind, check=check, severity=RULES[kind].severity, **more)  # type: ignore[arg-type]


def case(outcome: Outcome, *checks: CheckResult, name: str = "a", device: str = "cpu", **more: object) -> CaseResult:
    base = HEAD.results[0].case
    made = replace(base, id=f"{base.target}[{name}]{device}:float64", name=name, device=device)
    return CaseResult(case=made, outcome=outcome, checks=checks, **more)  # type: ignore[arg-type]


def check(outcome: Outcome, *findings: Finding, name: str = "backward", reason: str = "") -> CheckResult:
    return CheckResult(check=name, outcome=outcome, findings=findings, reason=reason)


def only(report: Report) -> Item:
    (item,) = aggregate.items(report)
    return item


FAILED, PASSED = Outcome.FAILED, Outcome.PASSED
WRONG = check(FAILED, finding("jacobian_mismatch_backward"))
RIGHT = check(PASSED)


def test_one_item_for_one_kind_in_one_check_over_devices_and_cases() -> None:
    results = (case(FAILED, WRONG), case(FAILED, WRONG, device="cuda:0"), case(FAILED, WRONG, name="b"))
    item = only(Report(results=results))
    assert item.devices == ("cpu", "cuda:0")
    assert len(item.occurrences) == 3


def test_a_note_beside_a_failure_does_not_fail() -> None:
    both = check(FAILED, finding("jacobian_mismatch_backward"), finding("small_mismatch"))
    assert [item.failing for item in aggregate.items(Report(results=(case(FAILED, both),)))] == [True, False]


def test_a_warning_in_a_passed_check_is_told_and_does_not_fail() -> None:
    report = Report(results=(case(PASSED, check(PASSED, finding("undeclared_surrogate"))),))
    assert only(report).severity is Severity.WARNING
    assert aggregate.verdict(report).exit_code is ExitCode.RIGHT


def test_a_failed_check_without_a_finding_still_fails() -> None:
    report = Report(results=(case(FAILED, check(FAILED)),))
    assert only(report).failing


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.ERRORED])
def test_a_case_that_ended_badly_is_told_once(outcome: Outcome) -> None:
    for checks in ((), (RIGHT,)):
        report = Report(results=(case(outcome, *checks, crash=Crash(cause="signal", stage="double_backward")),))
        assert (only(report).check, only(report).outcome) == ("double_backward", outcome)
    raised = check(Outcome.ERRORED, finding("user_error_in_backward"))
    assert only(Report(results=(case(Outcome.ERRORED, raised),))).kind == "user_error_in_backward"


def test_a_failure_is_told_beside_the_crash_that_followed() -> None:
    report = Report(results=(case(Outcome.CRASHED, WRONG, crash=Crash(cause="signal", stage="determinism")),))
    assert {item.outcome for item in aggregate.items(report)} == {FAILED, Outcome.CRASHED}


def test_wrong_values_come_before_nondeterminism_and_failures_before_notes() -> None:
    results = (
        case(PASSED, check(PASSED, finding("small_mismatch"))),
        case(FAILED, check(FAILED, finding("nondeterministic", "determinism"), name="determinism")),
        case(Outcome.ERRORED, check(Outcome.ERRORED, finding("user_error_in_jvp"), name="forward_ad")),
        case(FAILED, WRONG),
    )
    kinds = [item.kind for item in aggregate.items(Report(results=results))]
    assert kinds == ["jacobian_mismatch_backward", "nondeterministic", "user_error_in_jvp", "small_mismatch"]


def test_the_occurrence_that_shows_most_leads() -> None:
    item = next(item for item in aggregate.items(HEAD) if item.target == "kernels.softcap:SoftCap")
    assert item.lead.device == "cpu"
    assert item.lead.finding is not None
    assert item.lead.finding.diagnosis is not None


@pytest.mark.parametrize(
    ("report", "fail_on", "code"),
    [
        (Report(), "failures", ExitCode.NOTHING_CHECKED),
        (Report(results=(case(PASSED, RIGHT),)), "failures", ExitCode.RIGHT),
        (Report(results=(case(FAILED, WRONG),)), "failures", ExitCode.WRONG),
        (Report(results=(case(FAILED, WRONG),)), "errors", ExitCode.RIGHT),
        (Report(results=(case(FAILED, WRONG),)), "nothing", ExitCode.RIGHT),
        (Report(results=(case(FAILED, WRONG),)), "new-failures", ExitCode.WRONG),
        (Report(results=(case(Outcome.CRASHED, crash=Crash(cause="signal")),)), "errors", ExitCode.WRONG),
        (Report(results=(case(Outcome.CRASHED, crash=Crash(cause="signal")),)), "nothing", ExitCode.RIGHT),
        (Report(results=(case(Outcome.SKIPPED, reason="no_inputs"),)), "failures", ExitCode.NOTHING_CHECKED),
        (
            Report(results=(case(Outcome.UNSUPPORTED, check(Outcome.UNSUPPORTED)),)),
            "failures",
            ExitCode.NOTHING_CHECKED,
        ),
        (Report(results=(case(PASSED, RIGHT),), shard=Shard(expected=("1/2", "2/2"))), "failures", ExitCode.WRONG),
        (Report(results=(case(PASSED, RIGHT),), shard=Shard(expected=("1/2", "2/2"))), "nothing", ExitCode.RIGHT),
        (Report(results=(case(PASSED, RIGHT),), run=Run(interrupted=True)), "failures", ExitCode.WRONG),
        (Report(findings=(finding("device_difference"),)), "failures", ExitCode.WRONG),
    ],
)
def test_the_exit_code(report: Report, fail_on: str, code: ExitCode) -> None:
    assert aggregate.verdict(report, fail_on).exit_code is code


def test_what_is_known_does_not_fail_where_only_new_failures_do() -> None:
    report = Report(results=(case(FAILED, WRONG),))
    known = [replace(only(report), new=False)]
    assert aggregate.verdict(report, "new-failures", known).exit_code is ExitCode.RIGHT
    assert aggregate.verdict(report, "failures", known).exit_code is ExitCode.WRONG


def test_another_word_for_fail_on_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of failures, new-failures, errors, nothing"):
        aggregate.verdict(Report(), "always")


def test_every_discovered_target_is_counted_once() -> None:
    counted = aggregate.verdict(HEAD)
    assert counted.targets == len(HEAD.targets) == sum(counted.states.values())
    assert counted.checked == counted.targets - counted.states[TargetState.UNCHECKED]
    assert counted.states[TargetState.WRONG] == 5


def test_nothing_is_called_checked_where_no_check_was_made() -> None:
    lone = Target(id="k:Lone", kind=TargetKind.FUNCTION)
    for results in ((), (case(Outcome.SKIPPED, reason="process_group"),), (case(Outcome.UNSUPPORTED),)):
        report = Report(targets=(lone,), results=results, unchecked=(Unchecked(target="k:Other", reason="no_inputs"),))
        assert aggregate.verdict(report).checked == 0
        assert {"k:Lone", "k:Other"} <= {each.target for each in aggregate.unchecked(report)}


def test_a_capability_is_the_worst_over_cases_and_a_crash_shows_at_its_check() -> None:
    crashed = case(Outcome.CRASHED, name="b", crash=Crash(cause="signal", stage="backward"))
    cells = aggregate.matrix(Report(results=(case(PASSED, RIGHT), crashed))).cells
    assert set(cells.values()) == {"broken"}
    assert aggregate.matrix(Report(results=(case(PASSED, RIGHT), case(FAILED, WRONG, name="b")))).cells == {
        (HEAD.results[0].case.target, "backward", "cpu"): "wrong"
    }


def test_the_place_is_the_method_at_fault_else_the_nearest_that_is_known() -> None:
    known = aggregate.targets_by_id(HEAD)
    report = Report(results=(case(FAILED, WRONG),))
    place = aggregate.location(only(report), known)
    assert place is not None
    assert place.symbol == "SoftCap.backward"
    named = check(FAILED, finding("jacobian_mismatch_backward", location=Location(path="x.py", line=3)))
    own = aggregate.location(only(Report(results=(case(FAILED, named),))), known)
    assert own == Location(path="x.py", line=3)
    assert aggregate.location(only(report), {}) is None


@WHOLE_REPORTS
@given(reports())
def test_any_report_can_be_judged(report: Report) -> None:
    told = aggregate.items(report)
    counted = aggregate.verdict(report, told=told)
    assert counted.failures + counted.errors == sum(item.failing for item in told)
    assert sum(counted.states.values()) == counted.targets >= counted.checked
    if counted.failures or counted.errors:
        assert counted.exit_code is ExitCode.WRONG
