"""Verdicts in float32, float16 and bfloat16 over torch's own operator samples.

Run as `python tests/benchmarks/low_precision.py [--ops N] [--seeds N] [--write]`. An operator is taken as correct where
its gradient passes in float64. Faults are put on the gradient of the first input. Two ways are measured apart: against
a float64 run, and by the probe alone, as for kernels that accept nothing but low precision.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from benchmarks.diagnosis_cases import Bend

from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Verdict
from gradbot.engine.low_precision import compare
from gradbot.engine.low_precision.upcast import prepared_in_double
from gradbot.engine.prepare import Prepared, prepare
from gradbot.model import CheckSettings

TABLE = pathlib.Path(__file__).parent / "LOW_PRECISION.md"
SECONDS = 12


def _row(grad: Tensor) -> Tensor:
    changed = grad.clone()
    if grad.dim():
        changed[len(changed) // 2] = 0
        return changed
    return grad * 0


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "x1.5": lambda g: g * 1.5,
    "sign": lambda g: -g,
    "a row of zeros": _row,
    "flipped": lambda g: g.flip(-1) if g.dim() else g * 0.5,
    "mean subtracted": lambda g: g - g.mean() if g.numel() > 1 else g * 0.5,
}


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def operators(dtype: torch.dtype) -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if dtype in op.dtypes and torch.float64 in op.dtypes and op.supports_autograd]


def samples(
    dtype: torch.dtype, most: int, seed: int
) -> Iterator[tuple[str, Callable[..., object], tuple[object, ...], dict[str, object]]]:
    chosen = operators(dtype)
    random.Random(0).shuffle(chosen)
    for op in chosen[:most]:
        torch.manual_seed(seed)
        try:
            sample = next(iter(op.sample_inputs("cpu", dtype, requires_grad=True)))
        except (RuntimeError, StopIteration, TypeError, ValueError):
            continue
        yield op.name, _called(op, sample), (sample.input, *sample.args), dict(sample.kwargs)


def _called(op: object, sample: object) -> Callable[..., object]:
    variant = op.get_op()

    def call(*args: object, **kwargs: object) -> object:
        result = op.gradcheck_wrapper(variant, *args, **kwargs)
        return sample.output_process_fn_grad(result) if sample.output_process_fn_grad is not None else result

    return call


def broken(func: Callable[..., object], bend: Callable[[Tensor], Tensor]) -> Callable[..., object]:
    """The function with a fault on its first differentiable argument, in low precision only."""

    def only_low(grad: Tensor, _value: Tensor) -> Tensor:
        return bend(grad) if grad.dtype not in (torch.float64, torch.complex128) else grad

    def call(first: object, *args: object, **kwargs: object) -> object:
        if isinstance(first, Tensor):
            return func(Bend.apply(first, only_low), *args, **kwargs)
        return func([Bend.apply(each, only_low) for each in first], *args, **kwargs)

    return call


def verdicts(prepared: Prepared, seed: int) -> dict[str, Verdict]:
    """By way: against float64, by the probe alone."""
    found = {}
    double = prepared_in_double(prepared.subject, seed=seed)
    if double is not None:
        found["against float64"] = compare(prepared.problem, double=double.problem, seed=seed).verdict
    found["probe"] = compare(prepared.problem, seed=seed).verdict
    return found


def run(dtype: torch.dtype, options: argparse.Namespace) -> dict[tuple[str, str], Counter[str]]:
    """Counts of verdicts by (way, "correct" or "faulty")."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    settings, verbose = CheckSettings(), options.verbose
    faults = {} if options.no_faults else FAULTS
    for seed in range(options.seeds):
        for name, func, args, kwargs in samples(dtype, options.ops, seed):
            try:
                with deadline(SECONDS):
                    prepared = prepare(func, args, kwargs, seed=seed)
                    if not prepared.subject.selected or prepared.subject.seed is not None:
                        continue
                    double = prepared_in_double(prepared.subject, seed=seed)
                    if (
                        double is None
                        or compare_jacobians(double.problem, settings=settings).verdict is not Verdict.AGREE
                    ):
                        continue
                    for way, verdict in verdicts(prepared, seed).items():
                        counts.setdefault((way, "correct"), Counter())[verdict.value] += 1
                        if verdict is not Verdict.AGREE and verbose:
                            print(
                                "FALSE" if verdict is Verdict.DIFFER else "UNSURE", dtype, way, name, seed, flush=True
                            )
                    clean = prepared.problem.linearize()
                    cotangents = [torch.randn_like(each) for each in clean.outputs]
                    before = clean.vjp(cotangents)
                    for fault, bend in faults.items():
                        wrong = prepare(broken(func, bend), args, kwargs, seed=seed)
                        if not changes(before, wrong, cotangents):
                            continue
                        for way, verdict in verdicts(wrong, seed).items():
                            counts.setdefault((way, "faulty"), Counter())[verdict.value] += 1
                            if verdict is Verdict.AGREE and verbose:
                                print("MISSED", dtype, way, name, fault, seed, flush=True)
            except Exception as error:  # whatever an operator raises, it is left out and said
                if verbose:
                    print("left out", name, type(error).__name__, str(error)[:80], flush=True)
    return counts


def changes(before: tuple[Tensor | None, ...], wrong: Prepared, cotangents: list[Tensor]) -> bool:
    """Whether a fault changes the gradient by more than half of it somewhere: less can hide in a low precision."""
    after = wrong.problem.linearize().vjp(cotangents)
    for old, new in zip(before, after, strict=True):
        if old is None or new is None or not old.numel():
            continue
        gap = (old.double() - new.double()).norm()
        if float(gap) > 0.4 * float(old.double().norm()):
            return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=10_000)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float16", "bfloat16"])
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lines = [
        "# Low precision: verdicts over operator samples",
        "",
        f"First sample of {min(options.ops, len(operators(torch.float32)))} operators of torch "
        f"{torch.__version__.split('+')[0]}, {options.seeds} seed(s), CPU.",
        "Correct: the gradient passes in float64. Faulty: one of "
        + ", ".join(FAULTS)
        + " on the first input, where that moves the gradient by 40% or more.",
        "Made by `python tests/benchmarks/low_precision.py --write`.",
        "",
        "| dtype | way | of | agree | unsure | differ |",
        "|---|---|---|---|---|---|",
    ]
    for dtype in (getattr(torch, each) for each in options.dtypes):
        start = time.perf_counter()
        counts = run(dtype, options)
        for (way, truth), seen in sorted(counts.items()):
            total = sum(seen.values())
            cells = [f"{seen[each]} ({seen[each] / total:.1%})" for each in ("agree", "unsure", "differ")]
            lines.append(f"| {str(dtype).removeprefix('torch.')} | {way} | {truth} ({total}) | {' | '.join(cells)} |")
        print(dtype, f"{time.perf_counter() - start:.0f} s", flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        TABLE.write_text(text)


if __name__ == "__main__":
    main()
