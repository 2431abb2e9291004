"""A case that crashed in a late check shows, in every report, the crash and what was found before it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import example_run

from gradbot.model import CaseResult, CheckResult, Crash, Outcome, Report
from gradbot.report import aggregate, compare, html, junit, markdown, terminal

HEAD = example_run.head()
DIED = "died of SIGSEGV during double_backward"
TAIL = "launching softcap_bwd2\nmisaligned address\n"


def crashed() -> CaseResult:
    """The example's wrong backward, with a pass beside it, and a process that died in the check after them."""
    wrong = next(each for each in HEAD.results if each.case.target == "kernels.softcap:SoftCap")
    backward = next(each for each in wrong.checks if each.check == "backward")
    crash = Crash(cause="signal", signal="SIGSEGV", stage="double_backward", output_tail=TAIL)
    right = CheckResult(check="determinism", outcome=Outcome.PASSED)
    return replace(wrong, outcome=Outcome.CRASHED, checks=(backward, right), crash=crash, attempts=None)


RESULT = crashed()
REPORT = replace(HEAD, results=(RESULT,), findings=(), unchecked=(), problems=(), targets=())
FINDING = next(finding for check in RESULT.checks for finding in check.findings)


def test_the_finding_and_the_crash_are_two_things_to_tell() -> None:
    told = [(item.check, item.kind, item.outcome) for item in aggregate.items(REPORT) if item.failing]
    assert told == [("backward", FINDING.kind, Outcome.FAILED), ("double_backward", "", Outcome.CRASHED)]


def test_the_finished_checks_are_counted_and_the_one_that_crashed_is_broken() -> None:
    assert aggregate.verdict(REPORT).checks == 2
    cells = {check: state for (_, check, _), state in aggregate.matrix(REPORT).cells.items()}
    assert cells == {"backward": "wrong", "determinism": "ok", "double_backward": "broken"}


def test_a_crash_after_nothing_but_passes_is_not_right() -> None:
    clean = replace(RESULT, checks=RESULT.checks[1:])
    counted = aggregate.verdict(replace(REPORT, results=(clean,)))
    assert counted.states[aggregate.TargetState.BROKEN] == 1
    assert counted.states[aggregate.TargetState.RIGHT] == 0
    assert not counted.right


def test_the_terminal_shows_both_and_the_last_output_once_at_the_crash() -> None:
    text = terminal.render(REPORT, width=120, verbose=True)
    assert "backward" in text
    assert DIED in text
    assert text.count("misaligned address") == 1
    assert text.index("analytical") < text.index("misaligned address")


def test_one_case_in_full_shows_the_crash_and_every_finished_check() -> None:
    text = terminal.render_case(RESULT, width=120)
    assert DIED in text
    assert text.count("misaligned address") == 1
    assert "determinism" in text
    assert "analytical" in text


def test_the_comment_shows_the_evidence_with_the_crash_and_its_output_beside_it() -> None:
    text = markdown.comment(REPORT, compare.compare(REPORT))
    assert "| analytical | numerical |" in text
    beside = next(line for line in text.splitlines() if line.startswith("- also `double_backward`: "))
    assert "died of SIGSEGV" in beside
    assert text.count("misaligned address") == 1


def test_the_page_holds_the_crash_and_the_checks_of_the_case() -> None:
    page = html.render(REPORT, compare.compare(REPORT))
    blocks = re.findall(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    held = json.dumps([json.loads(block) for block in blocks])
    assert DIED in held
    assert "misaligned address" in held
    assert {"backward", "determinism"} <= set(re.findall(r'"check": "(\w+)"', held))


def _junit(report: Report) -> dict[str, list[str]]:
    cases = ElementTree.fromstring(junit.render(report)).iter("testcase")
    return {str(case.get("name")).partition("[")[0]: [child.tag for child in case] for case in cases}


def test_junit_has_a_testcase_for_each_finished_check_and_one_for_the_crash() -> None:
    found = _junit(REPORT)
    assert found["backward"][0] == "failure"
    assert found["determinism"] == []
    assert found["double_backward"] == ["error", "system-out"]


def test_junit_tells_a_crash_also_beside_a_check_that_errored() -> None:
    raised = CheckResult(check="forward_ad", outcome=Outcome.ERRORED, reason="user_error", details={"message": "no"})
    exited = Crash(cause="exception", exit_code=4, stage="double_backward", message="SystemExit: 4")
    result = replace(RESULT, outcome=Outcome.ERRORED, checks=(raised,), crash=exited)
    found = _junit(replace(REPORT, results=(result,)))
    assert found["forward_ad"][0] == "error"
    assert found["double_backward"][0] == "error"
