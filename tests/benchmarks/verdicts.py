"""Verdicts over torch's OpInfo databases: wrong ones on correct ops, and inconclusive ones.

    PYTHONPATH=tests python tests/benchmarks/verdicts.py --order 1 --samples 2

A derivative counts as correct where torch's own slow check passes it. That check is run only where gradbot does not
agree: where gradbot agrees nothing can be a false alarm.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections import Counter
from typing import Any

import torch
from benchmarks.judge import TerminatedError, TooLongError, at_most, gradbot_check, quiet, torch_passes
from benchmarks.opinfo_cases import OpCase, cases, op_name, problem_of, second_order, until

from gradbot.model import Mode


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--order", choices=("1", "2", "forward"), default="1")
    parser.add_argument("--samples", type=int, default=None, help="of each op; all by default")
    parser.add_argument("--mode", type=Mode, default=Mode.AUTO)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so many")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    quiet()
    dtype = getattr(torch, options.dtype)
    counts: Counter[str] = Counter()
    methods: Counter[str] = Counter()
    started, spent, touched = time.perf_counter(), 0.0, set()
    with contextlib.suppress(TerminatedError):
        for op in until(options.minutes, dtype):
            for case in _cases(op, dtype, options.samples, counts):
                if (options.order == "2" and not case.second_order) or (
                    options.order == "forward" and not case.forward
                ):
                    continue
                touched.add(case.op)
                start = time.perf_counter()
                verdict, line = _verdict(case, options, methods)
                spent += time.perf_counter() - start
                if verdict not in ("agree", "noted"):
                    verdict = _judged(case, verdict, options)
                counts[verdict] += 1
                if verdict != "agree":
                    print(f"{verdict:28} {case.name:50} {line}", flush=True)
    total = sum(counts.values())
    print(f"\norder {options.order}, {options.dtype}, mode {options.mode.value}: {len(touched)} ops, {total} samples")
    print(f"{spent:.0f} s in gradbot of {time.perf_counter() - started:.0f} s")
    for name, count in counts.most_common():
        print(f"  {name:32} {count:6} {100 * count / total:7.3f}%")
    print("  methods:", ", ".join(f"{name} {count}" for name, count in methods.most_common()))


def _cases(op: Any, dtype: torch.dtype, limit: int | None, counts: Counter[str]) -> list[OpCase]:
    try:
        return list(cases(op, dtype=dtype, limit=limit))
    except Exception as error:
        print(f"no samples of {op_name(op)}: {type(error).__name__}")
        counts["op without samples"] += 1
        return []


def _verdict(case: OpCase, options: argparse.Namespace, methods: Counter[str]) -> tuple[str, str]:
    try:
        with at_most(60):
            problem = problem_of(case.func, case.inputs)
            if options.order == "2":
                problem = second_order(problem)
            found = [
                gradbot_check(problem, mode=options.mode, order=options.order, seed=seed, side_checks=False)
                for seed in range(options.seeds)
            ]
    except TooLongError:
        return "too long", ""
    except Exception as error:
        return "raised", f"{type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"
    first = found[0]
    methods[first.method] += 1
    line = f"{first.method} {first.reason} largest {first.largest_relative_error:.1e} linear {first.linear}"
    if len({each.verdict for each in found}) > 1:
        return "depends on the seed", line
    if first.largest_relative_error > 0 and first.verdict.value == "agree":
        return "noted", line
    return first.verdict.value, line


def _judged(case: OpCase, verdict: str, options: argparse.Namespace) -> str:
    passes = torch_passes(
        case.func, case.inputs, order=options.order, fast=False, nondet_tol=case.nondet_tol, seconds=60
    )
    word = {True: "torch passes", False: "torch fails too", None: "torch takes too long"}[passes]
    return f"{verdict}, {word}"


if __name__ == "__main__":
    main()
