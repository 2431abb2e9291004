"""Work in a forked copy of the process, which may take its objects apart, hang or crash."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from gradbot import codec
from gradbot.codec import CodecError
from gradbot.model import Case, CaseResult, CheckResult, Crash, Outcome
from gradbot.record.watch import stop_hearing

Work = Callable[[Callable[[CheckResult], None]], CaseResult]
"""Checks a case; it is given what is to be told of each check that was made."""


def forked(work: Work, case: Case, seconds: float) -> CaseResult:
    """What `work` returns in a fork of this process, which has `seconds` for it.

    Where the fork dies or has to be stopped, the checks that it had made by then are kept. That the time was not
    enough tells nothing about a gradient: such a case is inconclusive, unless one of those checks failed.
    """
    with tempfile.TemporaryDirectory(prefix="gradbot-in-place-") as name:
        answer, made = Path(name) / "result.json", Path(name) / "checks.jsonl"
        child = os.fork()
        if child == 0:
            _child(work, case, answer, made)
        crash = _wait(child, seconds)
        if crash is None:
            return codec.loads(answer.read_text(encoding="utf-8"), CaseResult)
        return _died(case, crash, _finished(made))


def _child(work: Work, case: Case, answer: Path, made: Path) -> None:
    """Never returns: this copy of the process must not go on, whatever happens."""
    code = 1
    try:
        os.setpgid(0, 0)
        stop_hearing()
        torch.set_num_threads(1)
        with made.open("a", encoding="utf-8") as lines:

            def on_check(result: CheckResult) -> None:
                lines.write(" ".join(codec.dumps(result).splitlines()) + "\n")
                lines.flush()

            result = work(on_check)
        answer.write_text(codec.dumps(result), encoding="utf-8")
        code = 0
    except BaseException as error:  # noqa: BLE001  user code may raise anything
        crash = Crash(cause="exception", stage="in place", message=f"{type(error).__name__}: {error}"[:500])
        answer.write_text(codec.dumps(CaseResult(case=case, outcome=Outcome.ERRORED, crash=crash)), encoding="utf-8")
        code = 0
    finally:
        os._exit(code)


def _wait(child: int, seconds: float) -> Crash | None:
    try:
        status = _status(child, seconds)
    except BaseException:  # an interrupt of the suite: the fork is a process group of its own and would go on
        _stop(child)
        raise
    if status is None:
        _stop(child)
        return Crash(cause="timeout", limit=f"{seconds:g} s")
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return None
    if code < 0:
        return Crash(cause="signal", signal=signal.Signals(-code).name)
    return Crash(cause="exit", exit_code=code)


def _status(child: int, seconds: float) -> int | None:
    """The wait status of the fork; None where it is still running after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    return None


def _stop(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it has started itself
    os.waitpid(child, 0)


def _finished(made: Path) -> tuple[CheckResult, ...]:
    """The results of the checks that were made, the last of each; a line that was cut off is left out."""
    found: dict[str, CheckResult] = {}
    for line in made.read_text(encoding="utf-8").splitlines() if made.exists() else ():
        with contextlib.suppress(CodecError):
            result = codec.loads(line, CheckResult)
            found[result.check] = result
    return tuple(found.values())


def _died(case: Case, crash: Crash, checks: tuple[CheckResult, ...]) -> CaseResult:
    if crash.cause != "timeout":
        return CaseResult(case=case, outcome=Outcome.CRASHED, crash=crash, checks=checks)
    bad = [each.outcome for each in checks if each.outcome in (Outcome.FAILED, Outcome.ERRORED)]
    if bad:
        return CaseResult(case=case, outcome=bad[0], checks=checks)
    details = {"limit": crash.limit}
    return CaseResult(case=case, outcome=Outcome.INCONCLUSIVE, reason="out_of_time", details=details, checks=checks)
