"""Twelve functions at 16x8, 64x32 and 256x128: faults seen, time of a pass and of a fail, memory, growth of cost.

PYTHONPATH=tests python tests/benchmarks/sizes.py --shape 256 128
PYTHONPATH=tests python tests/benchmarks/sizes.py --memory
PYTHONPATH=tests python tests/benchmarks/sizes.py --growth
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import torch
from benchmarks.judge import changes_gradients, gradbot_check, paired_times, quiet, torch_passes
from benchmarks.opinfo_cases import problem_of
from faults.inject import inject
from faults.kinds import FAULTS
from torch import Tensor
from torch.nn import functional

from gradbot.engine.comparison import Verdict
from gradbot.model import Mode

Function = Callable[..., Tensor]


def functions(rows: int, columns: int) -> dict[str, tuple[Function, tuple[Tensor, ...]]]:
    generator = torch.Generator().manual_seed(0)

    def real(*shape: int) -> Tensor:
        return (torch.rand(shape, dtype=torch.float64, generator=generator) + 0.3).requires_grad_()

    x = real(rows, columns)
    return {
        "sin": (torch.sin, (x,)),
        "gelu": (functional.gelu, (x,)),
        "multiply": (torch.mul, (x, real(columns))),
        "softmax": (lambda x: x.softmax(-1), (x,)),
        "log_softmax": (lambda x: x.log_softmax(-1), (x,)),
        "layer_norm": (lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b), (x, real(columns), real(columns))),
        "cumsum": (lambda x: x.cumsum(0), (x,)),
        "matmul": (torch.matmul, (x, real(columns, columns))),
        "gram": (lambda x: x.T @ x, (x,)),
        "sort": (lambda x: x.sort(-1)[0], (x,)),
        "attention": (lambda x, y: ((x @ y.T) / columns**0.5).softmax(-1) @ y, (x, real(rows, columns))),
        "batch_norm": (lambda x: functional.batch_norm(x, None, None, training=True), (x,)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", type=int, nargs=2, default=(16, 8))
    parser.add_argument("--every", type=int, default=1, help="only every so many pairs of function and fault")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--child", default="")
    options = parser.parse_args()
    quiet()
    if options.child:
        _child(*options.child.split(":"))
    elif options.memory:
        _memory()
    elif options.growth:
        _growth()
    else:
        _detection(*options.shape, options.every)


def _detection(rows: int, columns: int, every: int) -> None:
    """Only faults that change something are counted: the fault's own error is large where its shape applies."""
    modes = (Mode.AUTO, Mode.FAST, *((Mode.EXACT,) if rows * columns <= 2048 else ()))
    seen: Counter[str] = Counter()
    faults, pairs, passes, fails, slowest = 0, 0, [], [], (0.0, "")
    for name, (func, inputs) in functions(rows, columns).items():
        check = problem_of(func, inputs)
        gradbot_check(check, mode=Mode.AUTO, side_checks=False)
        (passing,) = paired_times(lambda check=check: gradbot_check(check, mode=Mode.AUTO, side_checks=False))
        comparison = gradbot_check(check, mode=Mode.AUTO)
        passes.append((passing, name, comparison.verdict.value, comparison.method))
        for fault in FAULTS.values():
            if fault.name == "missing conj" or not fault.applies(inputs[0].shape):
                continue
            pairs += 1
            if pairs % every:
                continue
            verdicts = {}
            for mode in modes:
                start = time.process_time()
                verdicts[mode] = gradbot_check(
                    problem_of(inject(func, fault), inputs), mode=mode, side_checks=False
                ).verdict
                taken = time.process_time() - start
                if mode is Mode.AUTO and verdicts[mode] is Verdict.DIFFER:
                    fails.append(taken)
                    slowest = max(slowest, (taken, f"{name}, {fault.name}"))
            fast = torch_passes(inject(func, fault), inputs, order="1", fast=True)
            slow = torch_passes(inject(func, fault), inputs, order="1", fast=False) if rows * columns <= 128 else None
            real = slow is False or changes_gradients(func, inject(func, fault), inputs)
            if not real:
                continue
            faults += 1
            for mode, verdict in verdicts.items():
                seen[mode.value] += verdict is Verdict.DIFFER
                if verdict is not Verdict.DIFFER:
                    print(f"  {mode.value} passes {fault.name} in {name}")
            seen["torch fast"] += fast is False
            seen["torch slow"] += slow is False
    print(f"{rows}x{columns}: {faults} faults;", ", ".join(f"{who} {count}" for who, count in seen.items()))
    for passing, name, verdict, method in sorted(passes, reverse=True):
        print(f"  pass {1e3 * passing:8.2f} ms  {name:12} {verdict} {method}")
    fails.sort()
    print(
        f"  fail {1e3 * fails[len(fails) // 2]:8.2f} ms in the median, {1e3 * slowest[0]:.0f} ms at most ({slowest[1]})"
    )


def _memory() -> None:
    """Peak memory of a process that checks, less that of one that runs the function and its backward."""
    for name in ("gelu", "softmax", "matmul", "attention"):
        for what in ("pass", "fail"):
            used = {}
            for job in ("run", f"check-{what}"):
                command = [sys.executable, __file__, "--child", f"{name}:{job}"]
                answer = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
                used[job] = int(answer.stdout.split()[-1])
            more = (used[f"check-{what}"] - used["run"]) / 1024
            print(f"  {name:12} {what}: {more:8.1f} MiB over the function's own {used['run'] / 1024:.0f} MiB")


def _child(name: str, job: str) -> None:
    func, inputs = functions(256, 128)[name]
    func(*inputs).sum().backward()
    if job.startswith("check"):
        checked = inject(func, FAULTS["entry x2"]) if job == "check-fail" else func
        gradbot_check(problem_of(checked, inputs), mode=Mode.AUTO)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _growth() -> None:
    """Time of a pass and number of evaluations as the Jacobian grows."""
    for rows, columns in ((16, 8), (32, 16), (64, 32), (128, 64), (256, 128), (512, 256)):
        for name in ("softmax", "matmul"):
            func, inputs = functions(rows, columns)[name]
            calls = 0

            def counted(*args: Tensor, func: Function = func) -> Tensor:
                nonlocal calls
                calls += 1
                return func(*args)

            gradbot_check(problem_of(counted, inputs), mode=Mode.AUTO, side_checks=False)
            evaluations = calls
            problem = problem_of(func, inputs)

            def once(problem=problem) -> None:  # type: ignore[no-untyped-def]
                linear = problem.linearize()
                linear.vjp([torch.ones_like(each) for each in linear.outputs])

            ours, own = paired_times(
                lambda problem=problem: gradbot_check(problem, mode=Mode.AUTO, side_checks=False), once
            )
            entries = rows * columns * sum(each.numel() for each in inputs)
            print(
                f"  {rows:4}x{columns:<4} {name:8} J = {entries:.1e}: {1e3 * ours:8.2f} ms, "
                f"{ours / own:5.1f} times forward and backward, {evaluations} evaluations"
            )


if __name__ == "__main__":
    main()
