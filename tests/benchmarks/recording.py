"""What recording a package's own tests gives: targets discovered, with usable inputs, and the verdicts on them.

    python tests/benchmarks/recording.py PACKAGE=PATH[,PATH...] [...] [--seconds 300] [--runs 0] [-k WHICH] [--check]

Run it in an environment that has the packages and gradbot. Each path of a package's tests is recorded, interrupted
after `--seconds`, and `gradbot check` runs on what all of them recorded. With `--runs` they also run so often plain:
whether pytest's outcomes are the same is printed, and the slowdown as the ratio of the least processor times. With
`--check`, calls are also checked in place, which reaches those whose arguments cannot be written down.

A target has usable inputs if one of its cases came to a verdict on the gradient: right, wrong, or inconclusive at the
point. Cases that were skipped, whose forward raises, or that ended before their time, do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any


def run(command: list[str], folder: Path) -> tuple[str, float]:
    """What a command prints, and the processor time that it and its children took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PY_COLORS": "0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout + done.stderr, spent


def outcomes(text: str) -> str:
    """pytest's counts, without warnings and time."""
    closing = [line for line in text.splitlines() if re.search(r"\d+ (passed|failed|error)", line)]
    return (
        ", ".join(re.findall(r"\d+ (?:passed|failed|errors?|skipped|xfailed)", closing[-1])) if closing else "cut off"
    )


def measure(
    package: str, paths: list[Path], seconds: float, runs: int, expression: str, *, in_place: bool
) -> dict[str, Any]:
    """The row of one package."""
    folder = Path(tempfile.mkdtemp(prefix="gradbot-recording-"))
    (folder / "gradbot.toml").write_text('recorded = "cases"\n')
    gradbot = [sys.executable, "-m", "gradbot"]
    cases = ["--config", str(folder / "gradbot.toml"), *(["--check"] if in_place else [])]
    report_path = folder / ".gradbot" / "report.json"
    plain, recorded, results = [], [], []
    for path in paths:
        where = path if path.is_dir() else path.parent
        report_path.unlink(missing_ok=True)
        pytest = ["timeout", "-s", "INT", "-k", "60", f"{seconds:g}", sys.executable, "-m", "pytest", "-q"]
        pytest += ["-p", "no:cacheprovider", "-p", "no:xdist", "--continue-on-collection-errors", str(path)]
        pytest += ["-k", expression] if expression else []
        for _ in range(max(1, runs)):
            plain += [run(pytest, where)] if runs else []
            recorded.append(run([*gradbot, "record", "-p", package, *cases, "--", *pytest], where))
        if in_place:
            results += read(report_path).get("results", [])
    options = ["--json", str(folder / "report.json"), "-q", "--retries", "0"]
    run([*gradbot, "check", package, *options], folder)
    report = read(folder / "report.json")
    report["results"] = [*report.get("results", []), *results]
    (folder / "all.json").write_text(json.dumps(report))
    return {
        "plain": [outcomes(text) for text, _ in plain],
        "recorded": [outcomes(text) for text, _ in recorded],
        "slowdown": min(each[1] for each in recorded) / min(each[1] for each in plain) if plain else 0.0,
        "said": [line for text, _ in recorded for line in text.splitlines() if line.startswith(("gradbot:", "  not "))],
        **verdicts(report),
        "folder": str(folder),
    }


def read(path: Path) -> dict[str, Any]:
    """A report; empty where there is none."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


BAD = {"failed", "errored", "crashed", "timed_out"}


def verdicts(report: dict[str, Any]) -> dict[str, Any]:
    """Counts of Functions and ops of the package, and how they stand."""
    targets = {each["id"] for each in report.get("targets", []) if each["kind"] != "callable"}
    usable: set[str] = set()
    failed: dict[str, set[str]] = {}
    for result in report.get("results", []):
        target = result["case"]["target"]
        if result["outcome"] not in ("skipped", "crashed", "timed_out") and result.get("reason") not in (
            "user_error",
            "stale_recording",
        ):
            usable.add(target)
        if result["outcome"] in BAD:
            kinds = {finding["kind"] for check in result.get("checks", []) for finding in check.get("findings", [])}
            failed.setdefault(target, set()).update(kinds or {result["outcome"]})
    return {
        "targets": len(targets),
        "usable": len(targets & usable),
        "cases": Counter(result["outcome"] for result in report.get("results", [])),
        "failed": [f"{name} ({', '.join(sorted(kinds))})" for name, kinds in sorted(failed.items())],
        "without": sorted(targets - usable),
    }


def main() -> None:
    """Print one block a package."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suites", nargs="+", metavar="PACKAGE=PATH[,PATH...]")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("-k", dest="expression", default="")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    for suite in arguments.suites:
        package, _, paths = suite.partition("=")
        tests, runs, expression = (
            [Path(path).resolve() for path in paths.split(",")],
            arguments.runs,
            arguments.expression,
        )
        row = measure(package, tests, arguments.seconds, runs, expression, in_place=arguments.check)
        print(f"{package}: {row['usable']} of {row['targets']} targets have usable inputs")
        print(f"  suite: {'; '.join(row['recorded'])}")
        if arguments.runs:
            same = "the same" if row["plain"] == row["recorded"] else f"OTHERS: {'; '.join(row['plain'])}"
            print(f"  without recording: {same}; recording takes {row['slowdown']:.2f} x the processor time")
        print("".join(f"  {line}\n" for line in row["said"]), end="")
        print(f"  cases: {dict(row['cases'])}")
        print(f"  failing: {'; '.join(row['failed']) or 'none'}")
        print(f"  without inputs: {', '.join(row['without']) or 'none'}")
        print(f"  kept in {row['folder']}", flush=True)


if __name__ == "__main__":
    main()
