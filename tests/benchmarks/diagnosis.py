"""How often the named cause and place are right. Run as `python tests/benchmarks/diagnosis.py [--seeds N] [--write]`.

A diagnosis is right where it names the pattern that was injected, and its place where the fault states one; misplaced
where only the place is another; silent where it names nothing; misnamed where it names another pattern, even one that
predicts the very same Jacobian (the gradient of softmax for a constant grad_output is zero). For faults that have no
name, and for those that are two at once, saying nothing definite is right.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections import Counter
from dataclasses import dataclass

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from benchmarks.diagnosis_cases import Fault, Function, applies, broken, faults, functions

from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Verdict
from gradbot.engine.diagnose import diagnose
from gradbot.engine.localise import localise
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings, Diagnosis, Mode

TABLE = pathlib.Path(__file__).parent / "DIAGNOSIS.md"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One function with one fault: "right", "misplaced", "misnamed", "silent" or "unseen", and what was said."""

    function: str
    fault: str
    outcome: str
    said: str


def examine(function: Function, fault: Fault, seed: int) -> Row | None:
    """None where the fault does not apply or changes nothing."""
    inputs = tuple(each.requires_grad_() for each in function.inputs(seed))
    if not applies(function, fault, inputs):
        return None
    problem = Problem(func=broken(function, fault), inputs=inputs)
    settings = CheckSettings(mode=Mode.EXACT)
    comparison = compare_jacobians(problem, settings=settings, seed=seed)
    if comparison.verdict is not Verdict.DIFFER:
        return Row(function=function.name, fault=fault.name, outcome="unseen", said=comparison.verdict.value)
    located = localise(problem, comparison, settings, seed)
    first = next((each for each in located if each.input == 0), located[0])
    found = diagnose(problem, comparison, first)
    return Row(function=function.name, fault=fault.name, outcome=judge(found, fault), said=said(found))


def judge(found: Diagnosis | None, fault: Fault) -> str:
    if not fault.names:
        return "right" if found is None or found.pattern == "compound" else "misnamed"
    if found is None:
        return "silent"
    if found.pattern not in fault.names:
        return "misnamed"
    for key, expected in fault.place.items():
        value = found.parameters.get(key)
        same = abs(value - expected) <= 1e-3 * abs(expected) if isinstance(expected, float) else value == expected
        if not same:
            return "misplaced"
    return "right"


def said(found: Diagnosis | None) -> str:
    if found is None:
        return "nothing"
    return f"{found.pattern} {dict(found.parameters)} residual {found.residual:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name}")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        row
        for seed in range(options.seeds)
        for function in functions()
        for fault in faults()
        if (row := examine(function, fault, seed)) is not None
    ]
    if options.verbose:
        for row in rows:
            if row.outcome not in ("right", "unseen"):
                print(f"{row.outcome:10s} {row.function:18s} {row.fault:28s} {row.said}")
    text = table(rows, options.seeds)
    print(text)
    if options.write:
        TABLE.write_text(text)


def table(rows: list[Row], seeds: int) -> str:
    """The figures in Markdown: in all, then by fault."""
    outcomes = ("right", "silent", "misplaced", "misnamed")
    seen = [row for row in rows if row.outcome != "unseen"]
    total = Counter(row.outcome for row in seen)
    lines = [
        "# Diagnosis: how often the named cause and place are right",
        "",
        f"{len(faults())} kinds of fault, {len(functions())} functions, {seeds} seed(s), float64: "
        f"{len(seen)} wrong Jacobians",
        f"({len(rows) - len(seen)} faults changed nothing beyond the tolerances).",
        "Made by `python tests/benchmarks/diagnosis.py --write`.",
        "",
        "| " + " | ".join(["fault", "seen", *outcomes]) + " |",
        "|" + "---|" * (2 + len(outcomes)),
        "| **all** | "
        + " | ".join([str(len(seen)), *[f"{total[each]} ({total[each] / len(seen):.1%})" for each in outcomes]])
        + " |",
    ]
    for fault in faults():
        own = [row for row in seen if row.fault == fault.name]
        counts = Counter(row.outcome for row in own)
        lines.append("| " + " | ".join([fault.name, str(len(own)), *[str(counts[each]) for each in outcomes]]) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
