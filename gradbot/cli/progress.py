"""How a run is shown while it goes on: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from gradbot.model import CaseResult, Discovery, Outcome, TargetKind
from gradbot.plan import Plan
from gradbot.report import text

_QUIET_ABOVE = 300
_EVERY = 15.0
_FINE = frozenset({Outcome.PASSED, Outcome.EXPECTED_FAILURE, Outcome.SKIPPED, Outcome.UNSUPPORTED})


def opening(plan: Plan, found: Discovery, where: str, workers: int) -> list[str]:
    """The first lines: what was discovered, what it is checked with, and on what."""
    functions = sum(target.kind is TargetKind.FUNCTION for target in found.targets)
    ops = sum(target.kind is TargetKind.OP for target in found.targets)
    others = len(found.targets) - functions - ops
    kinds = [
        text.plural(number, word)
        for number, word in ((functions, "function"), (ops, "op"), (others, "callable"))
        if number
    ]
    sources: dict[str, set[str]] = {}
    cases = [*plan.cases, *(result.case for result in plan.skipped)]
    for case in cases:
        sources.setdefault(case.source.value, set()).add(case.target)
    of_these = ", ".join(f"{len(targets)} {source}" for source, targets in sources.items())
    inputs = len({case.target for case in cases})
    devices = ", ".join(sorted({case.device for case in plan.cases})) or "no device"
    found_line = f"discovered {text.plural(len(found.targets), 'target')} in {where}"
    found_line += f" ({', '.join(kinds)})" if kinds else ""
    found_line += f" · inputs for {inputs}" + (f": {of_these}" if of_these else "")
    return [
        found_line,
        f"checking {text.plural(len(plan.cases), 'case')} on {devices}, {text.plural(workers, 'worker')}",
    ]


class Shown:
    """Shows a run. Use as a context manager."""

    def __init__(self, stream: TextIO, *, where: str, terminal: bool, quiet: bool, verbose: bool) -> None:
        self._stream, self._where = stream, where
        self._quiet, self._verbose = quiet, verbose
        self._bar = (
            Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("[dim]{task.fields[now]}"),
                console=Console(file=stream),
                transient=True,
            )
            if terminal and not quiet
            else None
        )
        self._task: object = None
        self._total = self._done = 0
        self._said = time.monotonic()

    def __enter__(self) -> Shown:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def planned(self, plan: Plan, discovery: Discovery, workers: int) -> None:
        """Say what is about to be run."""
        self._total = len(plan.cases)
        if self._quiet:
            return
        first, second = opening(plan, discovery, self._where, workers)
        self._line(first)
        if self._bar is not None:
            self._task = self._bar.add_task(second, total=self._total, now="")
            self._bar.start()
        else:
            self._line(second)

    def stage(self, case_id: str, stage: str) -> None:
        """A case goes on to its next stage."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, now=text.cut(text.clean(f"{case_id} {stage}"), 60))  # type: ignore[arg-type]

    def finished(self, result: CaseResult) -> None:
        """A case ended for the first time."""
        self._done += 1
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)  # type: ignore[arg-type]
        elif not self._quiet:
            self._plain(result)

    def retried(self, result: CaseResult) -> None:
        """A failing case was run again."""
        attempts = result.attempts
        if self._verbose and not self._quiet and self._bar is None and attempts is not None:
            name = text.one_line(result.case.id, 160)
            self._line(f"   again {name}: failed {attempts.failures} of {attempts.runs}")

    def _plain(self, result: CaseResult) -> None:
        now = time.monotonic()
        many = self._total > _QUIET_ABOVE and not self._verbose
        if not many or result.outcome not in _FINE:
            place = f"{self._done}/{self._total}"
            name = text.one_line(result.case.id, 160)
            outcome = result.outcome.value.replace("_", " ")
            self._line(f"{place:>9} {outcome:<16} {name} {text.duration(result.seconds)}")
        elif now - self._said > _EVERY:
            self._said = now
            self._line(f"{self._done}/{self._total} cases")

    def _line(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()
