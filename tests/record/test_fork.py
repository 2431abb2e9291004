"""A check in a fork of the process: what comes back where it ends, dies, or has to be stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gradbot.messages import reproduction
from gradbot.model import Case, CaseResult, CheckResult, InputSource, Outcome
from gradbot.record.fork import forked

CASE = Case(id="m:F[a]", target="m:F", name="a", source=InputSource.RECORDED, reference="")
PASSED = CheckResult(check="backward", outcome=Outcome.PASSED)
FAILED = CheckResult(check="grad_outputs", outcome=Outcome.FAILED)

Tell = Callable[[CheckResult], None]


def test_a_result_comes_back(capfd: pytest.CaptureFixture[str]) -> None:
    wanted = CaseResult(case=CASE, outcome=Outcome.FAILED, checks=(PASSED, FAILED))
    assert forked(lambda _: wanted, CASE, 60) == wanted
    assert capfd.readouterr() == ("", "")


def test_whatever_is_raised_comes_back_as_an_error() -> None:
    def exits(_: Tell) -> Any:
        raise SystemExit(3)

    result = forked(exits, CASE, 60)
    assert result.outcome is Outcome.ERRORED
    assert result.crash is not None
    assert result.crash.message == "SystemExit: 3"


@pytest.mark.parametrize("made", [(), (PASSED,), (PASSED, FAILED)])
def test_a_crash_is_one_and_keeps_the_checks_that_were_made(made: tuple[CheckResult, ...]) -> None:
    def dies(tell: Tell) -> Any:
        for each in made:
            tell(each)
        os.kill(os.getpid(), signal.SIGKILL)

    result = forked(dies, CASE, 60)
    assert (result.outcome, result.checks) == (Outcome.CRASHED, made)
    assert result.crash is not None
    assert result.crash.signal == "SIGKILL"


@pytest.mark.parametrize(
    ("made", "outcome"),
    [((), Outcome.INCONCLUSIVE), ((PASSED,), Outcome.INCONCLUSIVE), ((PASSED, FAILED), Outcome.FAILED)],
)
def test_what_takes_too_long_is_no_failure_unless_a_check_failed(
    made: tuple[CheckResult, ...], outcome: Outcome
) -> None:
    def hangs(tell: Tell) -> Any:
        for each in made:
            tell(each)
        time.sleep(600)

    result = forked(hangs, CASE, 3)
    assert (result.outcome, result.checks, result.crash) == (outcome, made, None)
    assert result.reason == ("out_of_time" if outcome is Outcome.INCONCLUSIVE else "")


def test_of_a_check_that_is_told_twice_the_later_result_counts() -> None:
    def dies(tell: Tell) -> Any:
        tell(FAILED)
        tell(CheckResult(check=FAILED.check, outcome=Outcome.PASSED))
        os._exit(3)

    result = forked(dies, CASE, 60)
    assert [each.outcome for each in result.checks] == [Outcome.PASSED]


@pytest.mark.parametrize(
    ("target", "test", "command"),
    [
        ("kernels.scan:Scan", "tests/a.py::b[1]", "gradbot record --check -p kernels -- pytest 'tests/a.py::b[1]'"),
        ("kernels::scan", "tests/a.py::b", "gradbot record --check -- pytest tests/a.py::b"),
        ("kernels:Scan", "", "gradbot record --check -p kernels -- COMMAND"),
    ],
)
def test_a_call_in_place_is_made_again_by_the_test_that_made_it(target: str, test: str, command: str) -> None:
    case = replace(CASE, target=target, test_id=test, reference=f"in_place:{test}#0")
    assert reproduction(case) == command
