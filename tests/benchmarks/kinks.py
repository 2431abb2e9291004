"""Triage on integer grids and ties: how many correct functions are called wrong, how many faults are excused.

Run as `python tests/benchmarks/kinks.py [--seeds N] [--write] [--verbose]`.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections import Counter

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from benchmarks.kink_cases import AT_KINK, FAULTS, broken, functions, grids

from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Verdict
from gradbot.engine.kinks import TriageVerdict, triage
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings

TABLE = pathlib.Path(__file__).parent / "KINKS.md"
WRONG = {TriageVerdict.WRONG_GRADIENT, TriageVerdict.WRONG_AT_POINT, TriageVerdict.KINK_INVALID}


def verdict(problem: Problem, seed: int) -> str:
    """ "agree", "unsure", or the triage's verdict where Jacobians differ."""
    settings = CheckSettings()
    comparison = compare_jacobians(problem, settings=settings, seed=seed)
    if comparison.verdict is not Verdict.DIFFER:
        return comparison.verdict.value
    return triage(problem, comparison, settings, seed).verdict.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    wrong = {each.value for each in WRONG}
    correct: Counter[str] = Counter()
    faulty: Counter[str] = Counter()
    at_kink: Counter[str] = Counter()
    for seed in range(options.seeds):
        for kinked in functions():
            for grid, inputs in grids(kinked, seed):
                said = verdict(Problem(func=lambda *x, f=kinked.func: (f(*x),), inputs=inputs), seed)
                correct[said] += 1
                if said in wrong and options.verbose:
                    print("CALLED WRONG", kinked.name, grid, said, flush=True)
                if said == "agree":
                    continue  # faults are put where kinks are: elsewhere there is nothing to excuse them with
                for fault, bend in {**FAULTS, **AT_KINK}.items():
                    problem = Problem(func=broken(kinked, bend), inputs=inputs)
                    if not changes(problem, Problem(func=lambda *x, f=kinked.func: (f(*x),), inputs=inputs)):
                        continue
                    said = verdict(problem, seed)
                    (at_kink if fault in AT_KINK else faulty)[said] += 1
                    if said not in wrong and options.verbose:
                        print("EXCUSED", kinked.name, grid, fault, said, flush=True)
    lines = [
        "# Triage of kinks, jumps and domain edges",
        "",
        f"{len(functions())} functions on small integers, zeros, ties and equal numbers, "
        f"{options.seeds} seed(s), float64.",
        f"Faults: {', '.join(FAULTS)}; and, where the input is an integer or zero only: {', '.join(AT_KINK)}.",
        "A fault at a kink only may still lie within the one-sided slopes, where it is a valid subgradient.",
        "Made by `python tests/benchmarks/kinks.py --write`.",
        "",
        "| of | cases | called wrong | agree | by verdict |",
        "|---|---|---|---|---|",
    ]
    for name, counts in (
        ("correct functions", correct),
        ("faults everywhere", faulty),
        ("faults at kinks only", at_kink),
    ):
        total, bad = sum(counts.values()), sum(counts[each] for each in wrong)
        words = ", ".join(f"{key} {count}" for key, count in counts.most_common())
        lines.append(f"| {name} | {total} | {bad} | {counts['agree']} | {words} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        TABLE.write_text(text)


def changes(problem: Problem, clean: Problem) -> bool:
    """Whether a fault changes any gradient here."""
    first, second = problem.linearize(), clean.linearize()
    generator = torch.Generator().manual_seed(3)
    cotangents = [torch.rand(each.shape, generator=generator, dtype=each.dtype) + 0.5 for each in second.outputs]
    return any(
        not torch.allclose(a, b)
        for a, b in zip(first.vjp(cotangents), second.vjp(cotangents), strict=True)
        if a is not None and b is not None
    )


if __name__ == "__main__":
    main()
