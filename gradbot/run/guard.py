"""A small process that outlives a killed supervisor: ends its workers and finishes its report.

It waits on a pipe that only the supervisor holds. A line `done` before the end means that all is well. The end without
it means that the supervisor died: every process that carries the run's token is killed, and the journal is turned into
`report.json`. Both are needed because nothing can be done in a process that gets SIGKILL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from gradbot.run.journal import recover, write_report
from gradbot.run.launch import BOOT, PACKAGE
from gradbot.run.process import sweep


class Guard:
    """The supervisor's side. `paths` are those of the journal and of the report to make of it; None for no report."""

    def __init__(self, token: str, paths: tuple[Path, Path] | None = None) -> None:
        arguments = [token, *(str(path) for path in paths or ())]
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOT, PACKAGE, __name__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def done(self) -> None:
        """The run ended and cleaned up by itself."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"done\n")
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        self._process.wait()


def main(token: str, journal: str = "", report: str = "") -> None:
    """The guard's side: wait, then clean up if the supervisor died."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.read(0, 16).startswith(b"done"):
        return
    sweep(token)
    if journal and Path(journal).exists():
        write_report(recover(Path(journal)), Path(report))
