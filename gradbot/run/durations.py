"""How long cases took, kept from run to run so that the longest start first and shards come out even."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from gradbot.model import CaseResult, Outcome

MAX_ENTRIES = 200_000
_UNTYPICAL = frozenset({Outcome.SKIPPED, Outcome.CRASHED})


def read(path: Path) -> dict[str, float]:
    """Seconds by case id; nothing where the file is absent or not ours: it only ever speeds things up."""
    try:
        raw = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(raw, dict):
        return {}
    return {name: float(value) for name, value in raw.items() if isinstance(value, int | float) and 0 <= value < 1e6}


def write(path: Path, known: Mapping[str, float], results: Iterable[CaseResult]) -> None:
    """Write what is known, with the times of these results; the newest entries where there are too many."""
    merged = dict(known)
    for result in results:
        if result.outcome not in _UNTYPICAL:
            merged.pop(result.case.id, None)
            merged[result.case.id] = round(result.seconds, 4)
    kept = dict(list(merged.items())[-MAX_ENTRIES:])
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")
    os.replace(beside, path)
