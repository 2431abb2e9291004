"""What a case had found out before it killed its process, hung or broke the protocol is kept."""

from __future__ import annotations

import pytest
from run.pools import run, task
from run.projects import check, write

from gradbot.model import CaseResult, Outcome, Report

FIRST_TWO = """
check({"check": "backward", "outcome": "failed"})
stage("determinism")
check({"check": "determinism", "outcome": "passed"})
stage("double_backward")
"""
ENDS = [
    pytest.param("import ctypes; ctypes.string_at(0)", "signal", id="segfault"),
    pytest.param("import os; os._exit(3)", "exit", id="os._exit"),
    pytest.param("while True: pass", "timeout", id="hang"),
    pytest.param("import os; os.closerange(3, 4096)", "protocol", id="closed pipe"),
    pytest.param(
        "import os\nfor fd in range(3, 1000):\n  try: os.write(fd, b'garbage\\n')\n  except OSError: pass",
        "protocol",
        id="garbage in the pipe",
    ),
]


@pytest.mark.parametrize(("code", "cause"), ENDS)
@pytest.mark.parametrize("fork", [True, False], ids=["forked", "spawned"])
def test_checks_that_were_handed_over_outlive_their_worker(code: str, cause: str, fork: bool) -> None:
    ended = run([task("dying", FIRST_TWO + code, timeout=1.5)], fork=fork)["dying"]
    assert ended.crash is not None
    assert (ended.crash.cause, ended.crash.stage) == (cause, "double_backward")
    assert [each["check"] for each in ended.checks] == ["backward", "determinism"]


def test_a_later_result_takes_the_place_of_an_earlier_one_for_the_same_check() -> None:
    code = 'check({"check": "backward", "outcome": "passed"})\nimport os; os._exit(3)'
    ended = run([task("dying", FIRST_TWO + code)])["dying"]
    assert [(each["check"], each["outcome"]) for each in ended.checks] == [
        ("backward", "passed"),
        ("determinism", "passed"),
    ]


def test_a_crash_has_nothing_of_the_case_before_it() -> None:
    ended = run([task("first", FIRST_TWO, seconds=2.0), task("dying", "import os; os._exit(3)", seconds=1.0)])
    assert ended["first"].checks == ()
    assert ended["dying"].crash is not None
    assert ended["dying"].checks == ()


LATE = '''
import torch


class Late(torch.autograd.Function):
    """3 x, whose backward gives `slope`, and does what `misbehave` does where it is to be differentiated itself."""

    @staticmethod
    def forward(ctx, x, slope, misbehave):
        ctx.slope, ctx.misbehave = slope, misbehave
        return 3 * x

    @staticmethod
    def backward(ctx, grad_output):
        if torch.is_grad_enabled():
            ctx.misbehave()
        return ctx.slope * grad_output, None, None
'''
CASES = """
import ctypes, os, sys, time
import torch
import gradbot
from p.late import Late

ENDS = {
    "segfault": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(7),
    "hang": lambda: time.sleep(100),
    "sys.exit": lambda: sys.exit(4),
}


@gradbot.cases(Late, checks=["backward", "double_backward"])
def late():
    for name, misbehave in ENDS.items():
        for word, slope in (("wrong", 2.0), ("right", 3.0)):
            yield gradbot.Sample(torch.ones(2, dtype=torch.float64), slope, misbehave).named(f"{name} {word}")
    known = gradbot.Sample(torch.ones(2, dtype=torch.float64), 2.0, ENDS["exit"]).named("exit known")
    yield known.options(expect="failure", reason="the slope is known to be wrong")
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    files = {"p/__init__.py": "", "p/late.py": LATE, "cases_p.py": CASES}
    return check(write(tmp_path_factory.mktemp("late"), files), "p", timeout=3.0, retries=1)


@pytest.fixture(scope="module")
def results(report: Report) -> dict[str, CaseResult]:
    return {result.case.name: result for result in report.results}


NAMED = [
    ("segfault", Outcome.CRASHED, "signal"),
    ("exit", Outcome.CRASHED, "exit"),
    ("hang", Outcome.TIMED_OUT, "timeout"),
    ("sys.exit", Outcome.ERRORED, "exception"),
]


@pytest.mark.parametrize(("name", "outcome", "cause"), NAMED)
def test_a_wrong_backward_is_kept_where_a_later_check_ends_the_case(
    results: dict[str, CaseResult], name: str, outcome: Outcome, cause: str
) -> None:
    result = results[f"{name} wrong"]
    assert result.outcome is outcome
    assert result.crash is not None
    assert (result.crash.cause, result.crash.stage) == (cause, "double_backward")
    (made,) = result.checks
    assert (made.check, made.outcome) == ("backward", Outcome.FAILED)
    (finding,) = made.findings
    assert finding.kind == "jacobian_mismatch_backward"
    assert finding.location is not None
    assert finding.location.path == "p/late.py"
    assert finding.evidence is not None
    assert finding.evidence.entries


@pytest.mark.parametrize(("name", "outcome", "cause"), NAMED)
def test_a_right_backward_is_kept_where_a_later_check_ends_the_case(
    results: dict[str, CaseResult], name: str, outcome: Outcome, cause: str
) -> None:
    result = results[f"{name} right"]
    assert result.outcome is outcome
    assert [(made.check, made.outcome) for made in result.checks] == [("backward", Outcome.PASSED)]


def test_a_retry_adds_to_the_count_and_takes_nothing_away(results: dict[str, CaseResult]) -> None:
    attempts = results["segfault wrong"].attempts
    assert attempts is not None
    assert (attempts.runs, attempts.failures) == (2, 2)


def test_a_declared_failure_is_an_expected_one_also_before_a_crash(results: dict[str, CaseResult]) -> None:
    result = results["exit known"]
    assert result.outcome is Outcome.CRASHED
    assert [(made.check, made.outcome) for made in result.checks] == [("backward", Outcome.EXPECTED_FAILURE)]
