"""The committed recordings: one JSON file a target, and `tensors.safetensors` for exact tensors too large for text.

A recording that is there already stays as it is when its signature is seen again, whatever values the suite drew this
time; so recording again without a change of the code gives no difference.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradbot.errors import UsageError
from gradbot.record.tensor_file import write_tensors

Json = Any
Entry = Mapping[str, Json]

FORMAT = 1
TENSORS = "tensors.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is kept: samples of one target, samples that differ in nothing but shapes, and exact tensors in all.

    `tensor_bytes` bounds what `tensors.safetensors` holds, for it is committed.
    """

    per_target: int = 12
    per_kind: int = 2
    tensor_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a recording changed. `not_portable` maps targets to why some calls could not be written down."""

    targets: int
    samples: int
    added: int
    removed: int
    not_portable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def read_spool(folder: Path) -> list[Entry]:
    """Every call that any process of a run has written, but for those that raised.

    Lines cut short by a crash are passed over.
    """
    entries: list[Entry] = []
    for path in sorted(folder.glob("*/calls.jsonl")):
        found: list[Entry] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if entry.get("raised"):
                found = [each for each in found if not _same_call(each, entry)]
            else:
                found.append({**entry, "folder": str(path.parent)})
        entries += found
    return entries


def _same_call(left: Entry, right: Entry) -> bool:
    return (left["target"], left.get("signature")) == (right["target"], right["signature"])


def choose(entries: Iterable[Entry], kept: Sequence[Entry], limits: Limits) -> list[Entry]:
    """Which samples of one target to keep, in a stable order, whatever the order they came in.

    What was kept before and is still seen stays. Calls that ask for a gradient come before others, and in the
    place of those with the same arguments but for tensors; new kinds before more shapes of a known kind, small ones
    before large ones. Degenerate inputs are kept only of kinds that were seen with no others.
    """
    unique = {entry["signature"]: entry for entry in sorted(entries, key=_is_generic)}
    for entry in kept:
        seen = unique.get(entry["signature"])
        if seen is not None and _is_generic(entry) >= _is_generic(seen):
            unique[entry["signature"]] = entry
    asking = {_plain_arguments(entry) for entry in unique.values() if entry["requires_grad"]}
    unique = {
        name: entry for name, entry in unique.items() if entry["requires_grad"] or _plain_arguments(entry) not in asking
    }
    better = {entry["kind"] for entry in unique.values() if _is_generic(entry)}
    unique = {name: entry for name, entry in unique.items() if _is_generic(entry) or entry["kind"] not in better}
    kept_names = {entry["signature"] for entry in kept}
    kinds: dict[str, list[Entry]] = defaultdict(list)
    order = sorted(
        unique.values(),
        key=lambda e: (e["signature"] not in kept_names, not e["requires_grad"], e["size"], e["signature"]),
    )
    for entry in order:
        kinds[entry["kind"]].append(entry)
    by_round: list[tuple[bool, int, bool, Entry]] = [
        (entry["signature"] not in kept_names, place, not entry["requires_grad"], entry)
        for group in kinds.values()
        for place, entry in enumerate(group[: limits.per_kind])
    ]
    by_round.sort(key=lambda item: (*item[:3], item[3]["size"], item[3]["signature"]))
    chosen = [item[3] for item in by_round[: limits.per_target]]
    return sorted(chosen, key=lambda entry: (entry["size"], entry["signature"]))


def _is_generic(entry: Entry) -> bool:
    return not entry.get("degenerate", False)


def _plain_arguments(entry: Entry) -> Json:
    """The kind of a call but for its tensors' dimensions, dtypes, and what of them requires grad."""
    try:
        return _without_tensors(ast.literal_eval(entry["kind"]))
    except (ValueError, SyntaxError):
        return entry["kind"]


def _without_tensors(part: Json) -> Json:
    if not isinstance(part, tuple):
        return part
    return "tensor" if part and part[0] == "tensor" else tuple(map(_without_tensors, part))


def read_target(path: Path) -> tuple[str, list[Entry]]:
    """A committed file: the target and its samples. Raises `UsageError` for anything else."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a recording: {error}. Delete it and record again") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("target"), str) or not isinstance(raw.get("samples"), list):
        raise UsageError(f"{path} is not a recording: `target` and `samples` are missing. Delete it and record again")
    if raw.get("format") != FORMAT:
        raise UsageError(f"{path} has the format {raw.get('format')!r}; this gradbot reads format {FORMAT}")
    return raw["target"], raw["samples"]


def file_name(target: str) -> str:
    """A file name for a target: readable, and distinct where two targets would look the same."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", target)
    return f"{plain[:100]}-{hashlib.sha256(target.encode()).hexdigest()[:6]}.json"


def update(
    folder: Path, entries: Sequence[Entry], *, limits: Limits, prune: bool, tensor_folders: Sequence[Path]
) -> Summary:
    """Bring the recordings in `folder` up to date with what was seen. Returns what changed."""
    by_target: dict[str, list[Entry]] = defaultdict(list)
    reasons: dict[str, set[str]] = defaultdict(set)
    problems = sorted({f"{e['target']}: {e['problem']}" for e in entries if "problem" in e})
    for entry in entries:
        if "not_portable" in entry:
            reasons[entry["target"]].add(entry["not_portable"])
        elif "args" in entry:
            by_target[entry["target"]].append(entry)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write recordings to {folder}: {error.strerror}") from None
    present = dict(read_target(path) for path in sorted(folder.glob("*.json")))
    added = removed = 0
    result: dict[str, list[Entry]] = {} if prune else dict(present)
    for target, seen in by_target.items():
        before = present.get(target, [])
        result[target] = _stored(choose(seen, before, limits) if prune else _with_unseen(seen, before, limits))
    for target in _fit(result, present, limits.tensor_bytes):
        reasons[target].add(f"its exact tensors do not fit into the {limits.tensor_bytes >> 20} MiB kept in all")
    for target in {*result, *present}:
        now = {entry["signature"] for entry in result.get(target, [])}
        then = {entry["signature"] for entry in present.get(target, [])}
        added, removed = added + len(now - then), removed + len(then - now)
    _write(folder, result, [*tensor_folders, folder])
    samples = sum(map(len, result.values()))
    portable = {target for target, found in result.items() if found}
    left = {target: tuple(sorted(why)) for target, why in sorted(reasons.items()) if target not in portable}
    return Summary(
        targets=len(portable),
        samples=samples,
        added=added,
        removed=removed,
        not_portable=left,
        problems=tuple(problems),
    )


def _with_unseen(seen: Sequence[Entry], before: Sequence[Entry], limits: Limits) -> list[Entry]:
    """Without pruning, samples that were not seen this time stay too."""
    return choose([*seen, *before], before, limits)


def _fit(result: dict[str, list[Entry]], present: Mapping[str, Sequence[Entry]], limit: int) -> set[str]:
    """Drop samples until the exact tensors of the others fit into `limit` bytes. Returns targets that lost some.

    Those that were kept before stay first, then each target's smallest: so most targets keep one.
    """
    before = {(target, entry["signature"]) for target, samples in present.items() for entry in samples}
    queue = []
    for target, samples in result.items():
        sizes = sorted((sum(_attached(entry).values()), entry["signature"]) for entry in samples)
        for place, (size, signature) in enumerate(sizes):
            queue.append(((target, signature) not in before, place, size, target, signature))
    entries = {(target, entry["signature"]): entry for target, samples in result.items() for entry in samples}
    names: dict[str, int] = {}
    dropped = set()
    for *_, target, signature in sorted(queue):
        more = names | _attached(entries[target, signature])
        if sum(more.values()) > limit:
            dropped.add((target, signature))
        else:
            names = more
    for target, samples in result.items():
        result[target] = [entry for entry in samples if (target, entry["signature"]) not in dropped]
    return {target for target, _ in dropped}


def _attached(raw: Json) -> dict[str, int]:
    """The exact tensors that a sample needs beside its text, by name, and how many bytes each takes."""
    found: dict[str, int] = {}
    if isinstance(raw, Mapping):
        if set(raw) >= {"dtype", "shape", "file"}:
            bits = re.search(r"\d+", str(raw["dtype"]))
            found[str(raw["file"])] = math.prod(raw["shape"]) * (int(bits.group()) // 8 if bits else 1)
        raw = list(raw.values())
    if isinstance(raw, list):
        for item in raw:
            found |= _attached(item)
    return found


_FIELDS = ("signature", "kind", "size", "requires_grad", "degenerate", "test", "args", "kwargs")


def _stored(entries: Iterable[Entry]) -> list[Entry]:
    return [{name: entry[name] for name in _FIELDS if name in entry} for entry in entries]


def _write(folder: Path, result: Mapping[str, Sequence[Entry]], tensor_folders: Sequence[Path]) -> None:
    wanted = {file_name(target): (target, samples) for target, samples in result.items() if samples}
    for path in folder.glob("*.json"):
        if path.name not in wanted:
            path.unlink()
    for name, (target, samples) in wanted.items():
        text = _as_text({"format": FORMAT, "target": target, "samples": list(samples)}) + "\n"
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    names = {name for samples in result.values() for entry in samples for name in _attached(entry)}
    write_tensors(folder / TENSORS, names, tensor_folders)


def _as_text(raw: Json, indent: str = "") -> str:
    """JSON with lists of plain values on one line each, as a person would write them, and sorted keys."""
    deeper = indent + " "
    if isinstance(raw, Mapping) and raw:
        items = [f"{deeper}{json.dumps(key)}: {_as_text(raw[key], deeper)}" for key in sorted(raw)]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(raw, list) and any(isinstance(item, Mapping | list) and item for item in raw):
        return "[\n" + ",\n".join(f"{deeper}{_as_text(item, deeper)}" for item in raw) + f"\n{indent}]"
    return json.dumps(raw)
