"""Time of `gradbot.gradcheck` and `gradgradcheck` against torch's, as a suite that swaps the import sees it.

    PYTHONPATH=tests python tests/benchmarks/gradcheck_speed.py --order 1      (or 2)

Defaults on both sides. gradbot's does what torch's does, and looks besides whether the function repeats itself and
leaves its inputs alone, and whether the backward is linear. Times are processor times on one thread, runs alternate.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from benchmarks.judge import TerminatedError, TooLongError, at_most, paired_times, quiet
from benchmarks.opinfo_cases import OpCase, cases, until

import gradbot

SIZES = (5, 20, 100, 10**9)
Row = tuple[str, int, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--order", choices=("1", "2"), default="1")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so many")
    parser.add_argument("--seconds", type=float, default=2.0, help="leave out what torch's slow check takes longer for")
    options = parser.parse_args()
    quiet()
    rows: list[Row] = []
    with contextlib.suppress(TerminatedError):
        for op in until(options.minutes):
            for case in cases(op, limit=1):
                if options.order == "1" or case.second_order:
                    rows += _timed(case, options.order, options.seconds)
    print(f"\norder {options.order}: {len(rows)} samples; ratios of torch's time over gradbot's")
    _line("all", rows)
    _line("without torch's ten slowest", sorted(rows, key=lambda row: row[2][1])[:-10])
    for least, most in zip((0, *SIZES), SIZES, strict=False):
        _line(f"{least} to {most} input elements", [row for row in rows if least <= row[1] < most])


def _timed(case: OpCase, order: str, limit: float) -> list[Row]:
    theirs: Callable[..., bool] = torch.autograd.gradcheck if order == "1" else torch.autograd.gradgradcheck
    ours: Callable[..., bool] = gradbot.gradcheck if order == "1" else gradbot.gradgradcheck
    options: dict[str, Any] = {"nondet_tol": case.nondet_tol, "raise_exception": False}
    try:
        with at_most(20):
            start = time.process_time()
            if not theirs(case.func, case.inputs, **options) or time.process_time() - start > limit:
                return []
            if not ours(case.func, case.inputs, **options):
                print(f"gradbot's says no, torch's yes: {case.name}", flush=True)
                return []
            times = paired_times(
                lambda: ours(case.func, case.inputs, **options),
                lambda: theirs(case.func, case.inputs, **options),
                lambda: theirs(case.func, case.inputs, fast_mode=True, **options),
            )
    except (TooLongError, Exception):  # what one side refuses is not timed
        return []
    return [(case.name, case.columns, times)]


def _line(title: str, rows: list[Row]) -> None:
    if not rows:
        return
    totals = [sum(times[side] for _, _, times in rows) for side in range(3)]
    means = [math.exp(sum(math.log(times[side] / times[0]) for _, _, times in rows) / len(rows)) for side in range(3)]
    print(
        f"  {title:32} {len(rows):4}  slow: total {totals[1] / totals[0]:6.2f}, mean {means[1]:6.2f}"
        f"   fast: total {totals[2] / totals[0]:5.2f}, mean {means[2]:5.2f}"
    )


if __name__ == "__main__":
    main()
