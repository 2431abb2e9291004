"""Failures that a repository has accepted, in a file that is committed: only new ones fail.

One entry a line, sorted, without dates, shas or line numbers, so that a change in the file is a change in what is
accepted. An entry stands for one kind of failure in one check of one target on one device in one dtype.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gradbot.errors import UsageError
from gradbot.model import Outcome, Report
from gradbot.report import aggregate, fingerprint
from gradbot.report.aggregate import Item, Occurrence
from gradbot.report.fingerprint import Marks

DEFAULT_PATH = "gradbot-baseline.json"
_VERSION = 1
_FIELDS = ("target", "check", "kind", "device", "dtype", "fingerprint")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Entry:
    """One accepted failure. `fingerprint` recognises the target after a rename; it may be empty."""

    target: str
    check: str
    kind: str
    device: str
    dtype: str
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The accepted failures of a repository, sorted."""

    entries: tuple[Entry, ...] = ()


def from_report(report: Report) -> Baseline:
    """Every failure of a report, accepted."""
    marks = fingerprint.marks(report)
    found = {
        _entry(item, occurrence, marks)
        for item in aggregate.items(report)
        if item.failing
        for occurrence in item.occurrences
    }
    return Baseline(entries=tuple(sorted(found)))


def updated(old: Baseline, report: Report) -> Baseline:
    """What `from_report` gives, with the old entries kept that this report says nothing about."""
    silent = [entry for entry in old.entries if not _spoken_of(entry, report, old)]
    fresh = from_report(report).entries
    named = {_key(entry) for entry in fresh}
    return Baseline(entries=tuple(sorted({*fresh, *(entry for entry in silent if _key(entry) not in named)})))


def holds(baseline: Baseline, report: Report) -> set[tuple[str, str, str, str, str]]:
    """The keys of what the baseline accepts, in terms of the report's own target ids: see `occurrence_key`."""
    same = _same(baseline, report)
    back: dict[str, list[str]] = {}
    for new, old in same.items():
        back.setdefault(old, []).append(new)
    return {
        (name, entry.check, entry.kind, entry.device, entry.dtype)
        for entry in baseline.entries
        for name in back.get(entry.target, [entry.target])
    }


def occurrence_key(item: Item, occurrence: Occurrence) -> tuple[str, str, str, str, str]:
    """What an entry is found by: target, check, kind, device, dtype."""
    kind = item.kind if occurrence.finding is not None else item.outcome.value
    return (item.target, item.check, kind, occurrence.device, occurrence.dtype)


def stale(baseline: Baseline, report: Report) -> tuple[Entry, ...]:
    """Entries that are no longer needed: their target is gone, or ran there and does not fail so any more."""
    failing = {_key(entry) for entry in from_report(report).entries}
    same = _same(baseline, report)
    back = {old: new for new, old in same.items()}
    found = []
    for entry in baseline.entries:
        name = back.get(entry.target, entry.target)
        key = (name, entry.check, entry.kind, entry.device, entry.dtype)
        if key not in failing and _spoken_of(entry, report, baseline):
            found.append(entry)
    return tuple(found)


def dumps(baseline: Baseline) -> str:
    """The file's text."""
    lines = [json.dumps({name: getattr(entry, name) for name in _FIELDS}) for entry in baseline.entries]
    body = "".join(f"\n    {line}{',' * (i < len(lines) - 1)}" for i, line in enumerate(lines))
    close = "\n  ]" if lines else "]"
    return f'{{\n  "gradbot_baseline": {_VERSION},\n  "entries": [{body}{close}\n}}\n'


def loads(text: str, path: str = DEFAULT_PATH) -> Baseline:
    """Read a file's text; raises `UsageError` with the place where it is not what `dumps` writes."""
    advice = "write it anew with `gradbot baseline update`"
    try:
        raw: Any = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}; {advice}") from None
    if not isinstance(raw, dict) or raw.get("gradbot_baseline") != _VERSION or not isinstance(raw.get("entries"), list):
        raise UsageError(
            f'{path} is not a baseline: expected {{"gradbot_baseline": {_VERSION}, "entries": [...]}}; {advice}'
        )
    return Baseline(
        entries=tuple(sorted(_read(each, f"{path}: entry {i + 1}") for i, each in enumerate(raw["entries"])))
    )


def _read(raw: Any, place: str) -> Entry:
    if not isinstance(raw, dict):
        raise UsageError(f"{place}: expected an object, found {type(raw).__name__}")
    if unknown := raw.keys() - set(_FIELDS):
        raise UsageError(f"{place}: unknown key {sorted(unknown)[0]!r}; expected {', '.join(_FIELDS)}")
    for name in _FIELDS:
        if name not in raw and name != "fingerprint":
            raise UsageError(f"{place}: lacks {name!r}")
        if not isinstance(raw.get(name, ""), str):
            raise UsageError(f"{place}: {name} must be text, found {raw[name]!r}")
    return Entry(**raw)


def _entry(item: Item, occurrence: Occurrence, marks: Mapping[str, Marks]) -> Entry:
    target, check, kind, device, dtype = occurrence_key(item, occurrence)
    mark = marks.get(target, Marks()).fingerprint
    return Entry(target=target, check=check, kind=kind, device=device, dtype=dtype, fingerprint=mark)


def _key(entry: Entry) -> tuple[str, str, str, str, str]:
    return (entry.target, entry.check, entry.kind, entry.device, entry.dtype)


def _same(baseline: Baseline, report: Report) -> dict[str, str]:
    before = {
        entry.target: Marks(name=entry.target.rpartition(":")[2], fingerprint=entry.fingerprint)
        for entry in baseline.entries
    }
    return fingerprint.renames(before, fingerprint.marks(report))


def _spoken_of(entry: Entry, report: Report, baseline: Baseline) -> bool:
    """Whether the report says how the entry stands: its check came to a result there, or its target is gone."""
    back = {old: new for new, old in _same(baseline, report).items()}
    name = back.get(entry.target, entry.target)
    if name not in _named(report):
        return not aggregate.missing_shards(report) and not report.run.interrupted and bool(report.targets)
    for result in report.results:
        if (result.case.target, result.case.device, result.case.dtype) == (name, entry.device, entry.dtype):
            if not entry.check:
                return True
            # a case that crashed says nothing of checks that it did not come to
            if any(check.check == entry.check and check.outcome in _DECIDED for check in result.checks):
                return True
    devices = {result.case.device for result in report.results if result.case.target == name}
    return not entry.device and len(devices) > 1  # a difference between devices


_DECIDED = frozenset({Outcome.PASSED, Outcome.FAILED, Outcome.EXPECTED_FAILURE, Outcome.UNEXPECTED_PASS})


def _named(report: Report) -> Iterable[str]:
    return {target.id for target in report.targets} | {result.case.target for result in report.results}
