"""Results as the project wants them told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gradbot.model import (
    Case,
    CaseResult,
    CheckResult,
    Crash,
    Finding,
    InputSource,
    Location,
    Outcome,
    Severity,
)
from gradbot.rules import RULES
from gradbot.run.settling import relative, settle

ROOT = Path("/project")


def finding(kind: str, severity: Severity = Severity.ERROR) -> Finding:
    place = Location(path="/project/p/ops.py", line=3)
    return Finding(rule=RULES[kind].id, kind=kind, check="backward", severity=severity, location=place)


def result(*checks: CheckResult) -> CaseResult:
    case = Case(id="p:A[a]cpu:float64", target="p:A", name="a", source=InputSource.DECLARED, reference="")
    return CaseResult(case=case, outcome=Outcome.FAILED, checks=checks, location=Location(path="/else/x.py", line=1))


WRONG = CheckResult(check="backward", outcome=Outcome.FAILED, findings=(finding("jacobian_mismatch_backward"),))
RIGHT = CheckResult(check="determinism", outcome=Outcome.PASSED)


def test_places_in_the_project_are_relative_to_it() -> None:
    settled = settle(result(WRONG), ROOT, lambda _: True)
    assert settled.checks[0].findings[0].location == Location(path="p/ops.py", line=3)
    assert settled.location == Location(path="/else/x.py", line=1)
    assert relative(None, ROOT) is None


def test_a_check_that_found_only_what_is_ignored_is_skipped_and_says_so() -> None:
    settled = settle(result(WRONG, RIGHT), ROOT, lambda kind: kind != "jacobian_mismatch_backward")
    assert settled.outcome is Outcome.PASSED
    assert settled.checks[0].outcome is Outcome.SKIPPED
    assert settled.checks[0].reason == "ignored_rules"
    assert settled.checks[0].details == {"rules": "GB101"}


def test_what_is_not_ignored_still_counts() -> None:
    both = CheckResult(
        check="backward",
        outcome=Outcome.FAILED,
        findings=(finding("jacobian_mismatch_backward"), finding("small_mismatch", Severity.NOTE)),
    )
    settled = settle(result(both), ROOT, lambda kind: kind != "small_mismatch")
    assert settled.outcome is Outcome.FAILED
    assert [each.kind for each in settled.checks[0].findings] == ["jacobian_mismatch_backward"]


def test_nothing_ignored_changes_nothing_but_places() -> None:
    assert settle(result(RIGHT), Path("/other"), lambda _: True) == result(RIGHT)


def test_a_crash_stays_one_whatever_of_the_findings_before_it_is_ignored() -> None:
    crashed = replace(result(WRONG, RIGHT), outcome=Outcome.CRASHED, crash=Crash(cause="signal", signal="SIGSEGV"))
    settled = settle(crashed, ROOT, lambda kind: kind != "jacobian_mismatch_backward")
    assert settled.outcome is Outcome.CRASHED
    assert [each.outcome for each in settled.checks] == [Outcome.SKIPPED, Outcome.PASSED]
