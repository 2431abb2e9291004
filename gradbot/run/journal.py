"""A record of a run that is complete at every moment, so that a killed run still has a report.

The file's first line is the report as it was when the run began, without results; each further line is the result of
a case. A later line for the same case replaces the earlier one. A line that was cut short is left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path

from gradbot import codec
from gradbot.errors import UsageError
from gradbot.model import CaseResult, Report, Unchecked


class Journal:
    """Writes the record. Lines are handed to the operating system one by one, so that they outlive this process."""

    def __init__(self, path: Path, report: Report) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0)
        self._file.write(codec.dumps(dataclasses.replace(report, results=())).encode("ascii") + b"\n")

    def add(self, result: CaseResult) -> None:
        """Record how a case ended."""
        self._file.write(codec.dumps(result).encode("ascii") + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def recover(path: Path) -> Report:
    """The report of an interrupted run from its journal. Raises `UsageError` where the file is no journal."""
    try:
        first, *lines = path.read_bytes().split(b"\n")
        report = codec.loads(first, Report)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not the journal of a run: {error}") from None
    results = {}
    for line in lines[:-1]:
        with contextlib.suppress(codec.CodecError):
            result = codec.loads(line, CaseResult)
            results[result.case.id] = result
    return interrupted(dataclasses.replace(report, results=tuple(results.values())))


def interrupted(report: Report) -> Report:
    """The report marked as interrupted; targets that the run did not get to are listed as unchecked."""
    reached = {result.case.target for result in report.results} | {each.target for each in report.unchecked}
    unreached = tuple(
        Unchecked(target=target.id, reason="interrupted") for target in report.targets if target.id not in reached
    )
    return dataclasses.replace(
        report,
        run=dataclasses.replace(report.run, interrupted=True),
        unchecked=report.unchecked + unreached,
    )


def write_report(report: Report, path: Path) -> None:
    """Write `report.json` so that no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(codec.dumps(report) + "\n", encoding="ascii")
    os.replace(beside, path)
