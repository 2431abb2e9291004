"""Time against torch's gradcheck and gradgradcheck, slow and fast, over torch's OpInfo databases, in one process.

    PYTHONPATH=tests python tests/benchmarks/speed.py --order 1

Same checks on both sides: the Jacobian, a repeated vjp and one of zero cotangents (no undefined gradients, no batched
ones). Times are processor times on one thread, and runs alternate. A sample whose slow check takes longer than
`--seconds` is left out of the comparison with slow and named.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.judge import TerminatedError, TooLongError, at_most, gradbot_check, paired_times, quiet, torch_check
from benchmarks.opinfo_cases import OpCase, cases, point_of, problem_of, second_order, until

from gradbot.engine.comparison import Verdict
from gradbot.model import Mode

SIZES = (100, 1_000, 10_000, 100_000, 10**12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Seconds of each side for one sample. `batched`: not a custom Function without vmap."""

    name: str
    entries: int
    auto: float
    exact: float | None
    slow: float | None
    fast: float
    batched: bool


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--order", choices=("1", "2"), default="1")
    parser.add_argument("--samples", type=int, default=1, help="of each op")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so many")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    quiet()
    timed = []
    with contextlib.suppress(TerminatedError):
        for op in until(options.minutes):
            for case in cases(op, limit=options.samples):
                if options.order == "2" and not case.second_order:
                    continue
                one = _timed(case, options.order, options.seconds)
                if one is not None:
                    timed.append(one)
    _report(timed, options.order)


def _timed(case: OpCase, order: str, limit: float) -> Timed | None:
    def run(mode: Mode) -> Callable[[], object]:
        def check() -> object:
            if order == "1":
                return gradbot_check(point_of(case.func, case.inputs), mode=mode)
            return gradbot_check(second_order(problem_of(case.func, case.inputs)), mode=mode)

        return check

    def torch_run(fast: bool) -> Callable[[], object]:
        return lambda: torch_check(case.func, case.inputs, order=order, fast=fast, nondet_tol=case.nondet_tol)

    try:
        with at_most(30):
            problem = problem_of(case.func, case.inputs)
            problem = second_order(problem) if order == "2" else problem
            if gradbot_check(problem, mode=Mode.AUTO).verdict is not Verdict.AGREE or not torch_run(True)():
                return None
            outputs = problem.linearize().outputs
            entries = sum(each.numel() for each in problem.inputs) * sum(each.numel() for each in outputs)
            auto, fast = paired_times(run(Mode.AUTO), torch_run(True))
    except (TooLongError, Exception):
        return None
    slow = exact = None
    try:
        with at_most(6 * limit):
            start = time.process_time()
            passed = torch_run(False)()
            if time.process_time() - start < limit and passed:
                auto, exact, slow = paired_times(run(Mode.AUTO), run(Mode.EXACT), torch_run(False))
    except (TooLongError, Exception) as error:
        print(f"slow left out: {case.name}: {type(error).__name__}")
    custom = "AutogradFunction" in case.op and "GenVmap" not in case.op
    return Timed(name=case.name, entries=entries, auto=auto, exact=exact, slow=slow, fast=fast, batched=not custom)


def _report(timed: list[Timed], order: str) -> None:
    both = [each for each in timed if each.slow is not None and each.exact is not None]
    print(f"\norder {order}: {len(timed)} samples, {len(both)} of them with torch's slow check")
    _line("torch slow / gradbot auto", [(each.slow or 0.0, each.auto) for each in both if each.batched])
    _line("torch slow / gradbot exact", [(each.slow or 0.0, each.exact or 0.0) for each in both if each.batched])
    _line("torch fast / gradbot auto", [(each.fast, each.auto) for each in timed if each.batched])
    custom = [each for each in both if not each.batched]
    if custom:
        _line("custom, slow / auto", [(each.slow or 0.0, each.auto) for each in custom])
        _line("custom, fast / auto", [(each.fast, each.auto) for each in custom])
    print("\nby number of Jacobian entries: samples, slow/auto, slow/exact, fast/auto (geometric means)")
    least = 0
    for most in SIZES:
        inside = [each for each in both if least <= each.entries < most]
        all_inside = [each for each in timed if least <= each.entries < most]
        if all_inside:
            print(
                f"  {least:>8} .. {most if most < 10**12 else 'more':>8}  {len(all_inside):5}"
                f"  {_mean([(each.slow or 0.0) / each.auto for each in inside]):7.2f}"
                f"  {_mean([(each.slow or 0.0) / (each.exact or 1.0) for each in inside]):7.2f}"
                f"  {_mean([each.fast / each.auto for each in all_inside]):7.2f}"
            )
        least = most
    slower = sorted((each for each in timed), key=lambda each: each.fast / each.auto)[:15]
    print("\nslowest against torch fast:", ", ".join(f"{each.name} {each.auto / each.fast:.1f}x" for each in slower))
    slower = sorted((each for each in both), key=lambda each: (each.slow or 0.0) / each.auto)[:15]
    print(
        "slowest against torch slow:",
        ", ".join(f"{each.name} {each.auto / (each.slow or 1.0):.1f}x ({each.entries})" for each in slower),
    )


def _line(title: str, pairs: list[tuple[float, float]]) -> None:
    """Ratios of torch's time over gradbot's: in total, without the ten slowest of torch's, as a geometric mean."""
    if not pairs:
        return
    total = sum(theirs for theirs, _ in pairs) / sum(ours for _, ours in pairs)
    kept = sorted(pairs)[:-10] if len(pairs) > 20 else pairs
    without = sum(theirs for theirs, _ in kept) / sum(ours for _, ours in kept)
    mean = _mean([theirs / ours for theirs, ours in pairs])
    print(
        f"  {title:28} {len(pairs):5} samples  total {total:7.2f}  without the ten slowest {without:7.2f}"
        f"  geometric mean {mean:6.2f}  ({sum(t for t, _ in pairs):.2f} s against {sum(o for _, o in pairs):.2f} s)"
    )


def _mean(ratios: list[float]) -> float:
    usable = [each for each in ratios if each > 0]
    return math.exp(sum(math.log(each) for each in usable) / len(usable)) if usable else math.nan


if __name__ == "__main__":
    main()
