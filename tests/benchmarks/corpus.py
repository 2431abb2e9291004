"""Verdicts on public packages: every case of `tests/corpus/cases.py`, held against what is known to be true of it.

    python tests/benchmarks/corpus.py [--only PREFIX]

Needs the packages of `tests/corpus/cases.py` in the environment; a case whose package is missing is named as such. Each
case runs in a fork of its own, because some packages write into their inputs or end the interpreter.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "corpus"))
import cases

from gradbot import messages
from gradbot.engine.api import check

WRONG = {
    "entmax.normmax_bisect_alpha",
    "entmax.budget_bisect_budget",
    "gpytorch.log_normal_cdf",
    "torch_struct.simplex_project",
}
"""Cases whose first derivative is wrong; those of `pypose.sim3_*` are too."""

DOUBLE_WRONG = (
    "entmax.entmax15",
    "entmax.entmax_bisect",
    "gpytorch.rbf",
    "gpytorch.matern",
    "gpytorch.quad_form",
    "gpytorch.compute_predictive",
    "roma.procrustes",
    "pypose",
    "torchsort",
    "torch_struct.checkpoint",
    "torchdiffeq",
)
"""Prefixes of cases whose second derivative may be called wrong."""


def run_case(name: str, seconds: float) -> dict[str, object]:
    """The verdict of one case, made in a fork of this process, or why there is none."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_check, args=(name, sending))
    process.start()
    sending.close()
    try:
        found: dict[str, object] = (
            json.loads(receiving.recv()) if receiving.poll(seconds) else {"died": f"no result after {seconds:g} s"}
        )
    except EOFError:
        process.join()
        found = {"died": f"exit code {process.exitcode}"}
    process.kill()
    process.join()
    return found


def _check(name: str, sending: Connection) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    try:
        func, args, kwargs = cases.CASES[name]["make"]()
    except ImportError as error:
        sending.send(json.dumps({"missing": str(error)[:120]}))
        return
    result = check(func, args, kwargs)
    checks = {
        each.check: [each.outcome.value, each.reason, sorted({messages.headline(f) for f in each.findings})]
        for each in result.checks
    }
    sending.send(json.dumps({"outcome": result.outcome.value, "seconds": result.seconds, "checks": checks}))


def truth(name: str, intent: str) -> str:
    """What is true of the first derivative: "right", "wrong" or "intended" (no gradient of the forward, on purpose)."""
    if name in WRONG or name.startswith("pypose.sim3"):
        return "wrong"
    if intent in ("ste", "scaled", "stochastic", "unsafe"):
        return "intended"
    return "right"


def judge(name: str, intent: str, found: dict[str, object]) -> tuple[str, str]:
    """("right" | "false alarm" | "missed" | "inconclusive" | "not run", details)."""
    if "missing" in found or "died" in found:
        return "not run", str(found.get("missing") or found.get("died"))
    checks = found["checks"]
    assert isinstance(checks, dict)
    failed = {check: told for check, told in checks.items() if told[0] in ("failed", "errored")}
    if "torchdiffeq.unchecked" in name or name == "norse.to_spike_times":
        return ("right" if failed else "missed"), _told(failed)
    expected = truth(name, intent)
    first = failed.keys() & {"backward", "forward_ad"}
    if expected == "wrong":
        return ("right" if first else "missed"), _told(failed) or str(checks.get("backward"))
    others = {check: told for check, told in failed.items() if check not in ("backward", "forward_ad")}
    if name.startswith(DOUBLE_WRONG):
        others = {
            c: t for c, t in others.items() if c not in ("double_backward", "forward_over_backward", "grad_outputs")
        }
    if expected == "right" and (first or others):
        return "false alarm", _told(failed)
    if expected == "intended":
        return "right", _told(failed)
    backward = checks.get("backward", ["", "", []])
    return ("right" if backward[0] == "passed" else "inconclusive"), f"{backward[0]} {backward[1]} {_told(failed)}"


def _told(failed: dict[str, list[object]]) -> str:
    return "; ".join(f"{check}: {told[1]} {told[2]}" for check, told in failed.items())[:300]


def main() -> None:
    """Run the cases and print one line each, and the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=float, default=120.0)
    arguments = parser.parse_args()
    counts: dict[str, int] = {}
    for name, case in cases.CASES.items():
        if name.startswith(arguments.only):
            verdict, details = judge(name, case["intent"], run_case(name, arguments.timeout))
            counts[verdict] = counts.get(verdict, 0) + 1
            print(f"{verdict:<12} {name:<36} {truth(name, case['intent']):<9} {details}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


if __name__ == "__main__":
    main()
