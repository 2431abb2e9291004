"""How fast the runner is: `python tests/benchmarks/runner.py`. Prints a table; nothing here decides a test.

200 cases of about 50 ms each, with one worker and with two; and what the runner itself takes per case, measured on 200
cases whose check takes next to nothing (wall time a case, less the time that the worker spends on the case).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from run.projects import SCALE, Silent, check, write

from gradbot.model import CaseResult, Discovery
from gradbot.plan import Plan

CASES = """
import time
import torch
import gradbot
from p.scale import Scale

@gradbot.cases(Scale, checks=["backward"])
def many():
    for number in range(200):
        yield gradbot.Sample(torch.ones(2, dtype=torch.float64), 2.0, lambda: {work}, "forward").named(str(number))
"""
SLEEP = "time.sleep(0.05 / 18)"  # a check of one backward calls the forward about eighteen times
BURN = "sum(range(60_000))"
NOTHING = "None"


class Clock(Silent):
    """When the cases began and when each ended."""

    def planned(self, plan: Plan, discovery: Discovery, workers: int) -> None:
        self.began, self.ends = time.perf_counter(), [time.perf_counter()]

    def finished(self, result: CaseResult) -> None:
        self.ends.append(time.perf_counter())


def run(work: str, jobs: int) -> tuple[float, list[float], list[float]]:
    """Seconds of all cases; of each as the supervisor sees it; between the ends of two."""
    with tempfile.TemporaryDirectory() as folder:
        files = {"p/__init__.py": "", "p/scale.py": SCALE, "cases_p.py": CASES.format(work=work)}
        clock = Clock()
        report = check(write(Path(folder), files), "p", progress=clock, jobs=jobs)
        gaps = [later - earlier for earlier, later in zip(clock.ends, clock.ends[1:], strict=False)]
        return clock.ends[-1] - clock.began, [result.seconds for result in report.results], gaps


def main() -> None:
    """Measure and print."""
    for name, work in (("sleeping", SLEEP), ("computing", BURN)):
        (one, each, _), (two, _, _) = run(work, 1), run(work, 2)
        print(
            f"200 cases, {name}, {1000 * statistics.median(each):.0f} ms each: "
            f"one worker {one:.2f} s, two {two:.2f} s, {two / one:.0%}"
        )
    _, each, gaps = run(NOTHING, 1)
    print(
        f"nothing to do: {1000 * statistics.median(gaps):.2f} ms from end to end, "
        f"{1000 * statistics.median(each):.2f} ms in the worker"
    )


if __name__ == "__main__":
    main()
