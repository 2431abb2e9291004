"""Which target of one run is which of another one, across renames, moves and shifted lines.

A target keeps its id, or its qualified name where its module moved, or its fingerprint where it was renamed in place:
its kind, its file, the methods it has and the inputs it is checked with. Lines are part of none of them. A match
counts only where it is the only one on both sides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from gradbot.model import CaseResult, Report, Target

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What a target can be recognised by beside its id. Empty where it is not known."""

    name: str = ""
    fingerprint: str = ""


def marks(report: Report) -> dict[str, Marks]:
    """The marks of every target that a report names."""
    results: dict[str, list[CaseResult]] = {target.id: [] for target in report.targets}
    for result in report.results:
        results.setdefault(result.case.target, []).append(result)
    known = {target.id: target for target in report.targets}
    return {name: _marks(name, known.get(name), some) for name, some in results.items()}


def _marks(name: str, target: Target | None, results: list[CaseResult]) -> Marks:
    last = name.rpartition(":")[2]
    if target is None or not results:
        return Marks(name=last)
    parts = [
        target.kind.value,
        target.location.path if target.location else "",
        sorted(target.methods),
        sorted({_inputs(result) for result in results}),
    ]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass"))
    return Marks(name=last, fingerprint=digest.hexdigest()[:16])


def _inputs(result: CaseResult) -> str:
    """The same on every device, so that a run on one device more changes no fingerprint."""
    shapes = [[*tensor.shape, tensor.dtype] for tensor in result.inputs]
    return json.dumps([result.case.name, shapes])


def renames(before: Mapping[str, Marks], after: Mapping[str, Marks]) -> dict[str, str]:
    """The targets of `after` by their ids, with the id that each had in `before`; new targets are left out."""
    same = {name: name for name in after if name in before}
    gone = {name: before[name] for name in before if name not in after}
    come = {name: after[name] for name in after if name not in before}
    for mark in ("name", "fingerprint"):
        found = unique_pairs(gone, come, attrgetter(mark))
        same.update({new: old for old, new in found.items()})
        gone = {name: each for name, each in gone.items() if name not in found}
        come = {name: each for name, each in come.items() if name not in same}
    return same


def cases(before: Report, after: Report, same: Mapping[str, str]) -> dict[str, CaseResult]:
    """The cases of `after` by their ids, with what the same case came to in `before`.

    A case keeps its name, or, where it was renamed, its target, device, dtype, inputs and outputs.
    """
    by_key = {_key(result, result.case.target): result for result in before.results}
    found: dict[str, CaseResult] = {}
    for result in after.results:
        target = same.get(result.case.target)
        match = by_key.get(_key(result, target)) if target is not None else None
        if match is not None:
            found[result.case.id] = match
    taken = {match.case.id for match in found.values()}
    gone = {result.case.id: result for result in before.results if result.case.id not in taken}
    come = {r.case.id: r for r in after.results if r.case.id not in found and r.case.target in same}
    before_keys = {name: _shown(result, result.case.target) for name, result in gone.items()}
    after_keys = {name: _shown(result, same[result.case.target]) for name, result in come.items()}
    pairs = unique_pairs(before_keys, after_keys, lambda key: key)
    found.update({new: gone[name] for name, new in pairs.items()})
    return found


def _key(result: CaseResult, target: str) -> tuple[str, str, str, str]:
    return (target, result.case.name, result.case.device, result.case.dtype)


def _shown(result: CaseResult, target: str) -> Hashable:
    if not result.inputs:
        return ""
    tensors = tuple((tensor.name, tensor.shape, tensor.dtype) for tensor in (*result.inputs, *result.outputs))
    return (target, result.case.device, result.case.dtype, tensors)


def unique_pairs(before: Mapping[str, T], after: Mapping[str, T], key: Callable[[T], Hashable]) -> dict[str, str]:
    """Names on both sides that alone have the same key; an empty key matches nothing."""
    left, right = _groups(before, key), _groups(after, key)
    return {
        names[0]: right[each][0]
        for each, names in left.items()
        if each and len(names) == 1 and len(right.get(each, ())) == 1
    }


def _groups(some: Mapping[str, T], key: Callable[[T], Hashable]) -> dict[Hashable, list[str]]:
    groups: dict[Hashable, list[str]] = {}
    for name, value in some.items():
        groups.setdefault(key(value), []).append(name)
    return groups
