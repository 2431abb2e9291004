"""Faults injected into every op of torch's OpInfo databases: how many pass, in gradbot and in torch's fast mode.

    PYTHONPATH=tests python tests/benchmarks/fault_detection.py --order backward

A fault counts where torch's slow check sees it, or, where it is not linear (which the slow check cannot see), where it
changes what a random cotangent gives beyond the tolerances. That is asked only where gradbot passes the fault: what
gradbot calls wrong was made wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.judge import (
    TerminatedError,
    TooLongError,
    at_most,
    changes_gradients,
    gradbot_check,
    quiet,
    torch_passes,
)
from benchmarks.opinfo_cases import OpCase, cases, problem_of, second_order, until
from faults.inject import ORDERS, inject
from faults.kinds import FAULTS, Fault

from gradbot.engine.comparison import Verdict
from gradbot.model import Mode

CHECKED_BY = {"backward": "1", "double backward": "2", "jvp": "forward"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--order", choices=ORDERS, default="backward")
    parser.add_argument("--samples", type=int, default=1, help="of each op")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so many")
    parser.add_argument(
        "--torch-fast", type=int, default=0, help="compare with torch's fast mode at every so many faults"
    )
    parser.add_argument("--mode", type=Mode, default=Mode.AUTO)
    options = parser.parse_args()
    quiet()
    counts: Counter[str] = Counter()
    missed_by_kind: Counter[str] = Counter()
    started, touched = time.perf_counter(), set()
    with contextlib.suppress(TerminatedError):
        for op in until(options.minutes):
            for case in cases(op, limit=options.samples):
                if _usable(case, options.order):
                    touched.add(case.op)
                    _inject_all(case, options, counts, missed_by_kind)
    real = counts["seen"] + counts["missed"] + counts["unsure"]
    print(f"\nfaults in the {options.order}, mode {options.mode.value}: {len(touched)} ops, {real} faults")
    print(f"  {time.perf_counter() - started:.0f} s")
    for name, count in counts.most_common():
        print(f"  {name:32} {count}")
    print("  missed and unsure by kind:", dict(missed_by_kind))


def _inject_all(case: OpCase, options: argparse.Namespace, counts: Counter[str], missed_by_kind: Counter[str]) -> None:
    """Every kind of fault in one sample; the rest of one that takes too long is left out."""
    too_long = 0
    for fault in FAULTS.values():
        if fault.name == "missing conj" or not fault.applies(case.inputs[0].shape) or too_long > 1:
            continue
        said = _said(case, fault, options)
        counts[said] += 1
        too_long += said == "too long"
        if said in ("missed", "unsure"):
            missed_by_kind[f"{said} {fault.name}"] += 1
            print(f"{said} {fault.name:20} {case.name}", flush=True)
        if options.torch_fast and sum(counts.values()) % options.torch_fast == 0 and said == "seen":
            _count_torch_fast(case, fault, options, counts)


def _usable(case: OpCase, order: str) -> bool:
    if (order == "double backward" and not case.second_order) or (order == "jvp" and not case.forward):
        return False
    return bool(case.inputs) and case.inputs[0].numel() > 0


def _said(case: OpCase, fault: Fault, options: argparse.Namespace) -> str:
    faulty = inject(case.func, fault, order=options.order)
    try:
        with at_most(30):
            problem = problem_of(faulty, case.inputs)
            if options.order == "double backward":
                problem = second_order(problem)
            comparison = gradbot_check(problem, mode=options.mode, order=CHECKED_BY[options.order])
    except TooLongError:
        return "too long"
    except Exception:
        return "raises"
    if comparison.verdict is Verdict.DIFFER:
        return "seen"
    if not _is_real(case, faulty, fault, options.order):
        return "within the tolerances, shown" if comparison.largest_relative_error > 0 else "changes nothing"
    return "unsure" if comparison.verdict is Verdict.UNSURE else "missed"


def _is_real(case: OpCase, faulty: Callable[..., Any], fault: Fault, order: str) -> bool:
    if fault.linear or order != "backward":
        return torch_passes(faulty, case.inputs, order=CHECKED_BY[order], fast=False, seconds=30) is False
    return changes_gradients(case.func, faulty, case.inputs)


def _count_torch_fast(case: OpCase, fault: Fault, options: argparse.Namespace, counts: Counter[str]) -> None:
    faulty = inject(case.func, fault, order=options.order)
    passes = torch_passes(faulty, case.inputs, order=CHECKED_BY[options.order], fast=True)
    counts["torch fast misses" if passes else "torch fast sees"] += 1


if __name__ == "__main__":
    main()
