"""Ending gradbot itself, however that is done, leaves a valid report of what was finished and no process."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from run.projects import SCALE, command, write
from run.waiting import wait_until

from gradbot import codec
from gradbot.model import Outcome, Report

CASES = """
import os, subprocess, time
import torch
import gradbot
from p.scale import Scale


def hang():
    subprocess.Popen(["sleep", "4321"])
    subprocess.Popen(["sleep", "4321"], start_new_session=True)
    open("hanging", "w").close()
    time.sleep(4321)


@gradbot.cases(Scale, checks=["backward"])
def scales():
    x = torch.ones(2, dtype=torch.float64)
    for number in range(3):
        yield gradbot.Sample(x, 2.0, lambda: None, "forward").named(f"right-{number}")
    yield gradbot.Sample(x, 2.0, hang, "backward").named("hang")
"""


def _hanging(root: Path) -> subprocess.Popen[str]:
    """A run that has finished three cases and hangs in the fourth."""
    write(root, {"p/__init__.py": "", "p/scale.py": SCALE, "cases_p.py": CASES})
    process = command(root, "check", "p", "--jobs", "1", "--timeout", "4000", start_new_session=True)
    hanging = root / "hanging"
    wait_until(lambda: hanging.exists() or process.poll() is not None, lambda: "the case did not begin")
    assert process.poll() is None, process.communicate()
    return process


def _left(root: Path) -> list[str]:
    """Processes that were started in the project's folder and are still there."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            where = os.readlink(f"/proc/{pid}/cwd")
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if where == str(root) and line:
            found.append(f"{pid} {line}")
    return found


def _nothing_left(root: Path) -> None:
    wait_until(lambda: not _left(root), lambda: _left(root))


def _report(root: Path) -> Report:
    path = root / ".gradbot" / "report.json"
    wait_until(path.exists, lambda: f"there is no {path}")
    return codec.loads(path.read_bytes(), Report)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_an_end_leaves_a_report_and_no_process(tmp_path: Path, number: signal.Signals) -> None:
    process = _hanging(tmp_path)
    assert any("sleep 4321" in line for line in _left(tmp_path))
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=60)
    _nothing_left(tmp_path)
    report = _report(tmp_path)
    assert report.run.interrupted
    assert [(result.case.name, result.outcome) for result in report.results] == [
        (f"right-{number}", Outcome.PASSED) for number in range(3)
    ]
    assert [target.id for target in report.targets] == ["p.scale:Scale"]
    if number is not signal.SIGKILL:
        assert process.returncode == 130
        assert (tmp_path / ".gradbot" / "junit.xml").exists()
        assert "report.json" in output


def test_an_interrupt_from_the_keyboard_reaches_the_supervisor_alone(tmp_path: Path) -> None:
    process = _hanging(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    _nothing_left(tmp_path)
    assert process.returncode == 130
    assert len(_report(tmp_path).results) == 3
