"""What is to be run: cases chosen, and the whole cut into shards. Pure: no file, no process."""

from __future__ import annotations

import difflib
import heapq
import math
import statistics
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from gradbot.errors import UsageError
from gradbot.model import Case, CaseResult, ImportProblem, Outcome, Target, Unchecked

SHARD_SECONDS = 300.0
MAX_SHARDS = 256
"""The most jobs that a GitHub matrix can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What was asked for: globs on case ids (`-k`), names or ids of cases (`--case`), target ids. Empty: everything."""

    globs: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.globs or self.cases or self.targets)

    def takes(self, case: Case) -> bool:
        """Whether this case was asked for."""
        return (
            (not self.targets or case.target in self.targets)
            and (not self.globs or any(_matches(case.id, glob) for glob in self.globs))
            and (not self.cases or any(each in (case.id, case.name) for each in self.cases))
        )

    def takes_target(self, target: Target) -> bool:
        """Whether something of this target could have been asked for, so that it is listed where it has no case."""
        return (not self.targets or target.id in self.targets) and not self.cases and not self.globs


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run, what is skipped and why, and what has nothing to be run with."""

    cases: tuple[Case, ...] = ()
    skipped: tuple[CaseResult, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a shard is made of: a case, or a target whose cases only another machine can tell."""

    key: str
    device: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """One shard: its name (`3/8`), the devices it needs, how long it should take, and its units' keys."""

    name: str
    devices: tuple[str, ...]
    seconds: float
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlans:
    """A whole run cut into shards, as `gradbot plan` writes it and `gradbot check --plan` reads it."""

    shards: tuple[ShardPlan, ...]
    version: int = 1


def make_plan(
    cases: Sequence[Case],
    targets: Sequence[Target],
    problems: Sequence[ImportProblem] = (),
    *,
    selection: Selection = Selection(),
    seed: int = 0,
    present: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for these cases and targets, under the run's seed.

    `present` maps devices to "" where they are there and to the reason where not; None: not known here, all are
    taken. A case with a reason to be skipped is skipped with it.
    """
    chosen = [replace(case, seed=seed) for case in cases if selection.takes(case)]
    skipped = [result for case in chosen if (result := _skipped(case, present)) is not None]
    left_out = {result.case.id for result in skipped}
    with_cases = {case.target for case in cases}
    failed = {problem.module: problem.reason for problem in problems}
    unchecked = tuple(
        _unchecked(target, failed)
        for target in targets
        if target.id not in with_cases and selection.takes_target(target)
    )
    return Plan(
        cases=tuple(case for case in chosen if case.id not in left_out), skipped=tuple(skipped), unchecked=unchecked
    )


def resolve_targets(names: Iterable[str], targets: Sequence[Target]) -> tuple[str, ...]:
    """Ids of the targets that were named, by id or alias. Raises `UsageError` with the nearest id."""
    known = {alias: target.id for target in targets for alias in target.aliases}
    known.update({target.id: target.id for target in targets})
    for name in names:
        if name not in known:
            raise UsageError(f"there is no target {name}{_nearest(name, known)}; `gradbot discover` lists all")
    return tuple(known[name] for name in names)


def hold_cases(selection: Selection, cases: Sequence[Case]) -> None:
    """Raise `UsageError` for a `--case` that no case has as its name or id."""
    known = {case.id for case in cases} | {case.name for case in cases}
    for name in selection.cases:
        if name not in known:
            raise UsageError(f"there is no case {name}{_nearest(name, known)}")


def estimates(cases: Iterable[Case], durations: Mapping[str, float]) -> dict[str, float]:
    """Seconds by case id: as recorded; else the median of the target's other cases, else of all."""
    ids = list(cases)
    by_target: dict[str, list[float]] = {}
    for case in ids:
        if case.id in durations:
            by_target.setdefault(case.target, []).append(durations[case.id])
    typical = {target: statistics.median(values) for target, values in by_target.items()}
    usual = statistics.median(durations.values()) if durations else 1.0
    return {case.id: durations.get(case.id, typical.get(case.target, usual)) for case in ids}


def units(cases: Sequence[Case], durations: Mapping[str, float], unexpanded: Iterable[tuple[str, str]]) -> list[Unit]:
    """The units of a run. `unexpanded` are (target, device) pairs whose cases are found on their own machine.

    Such a target is as long as all its recorded cases together.
    """
    known = estimates(cases, durations)
    found = [Unit(key=case.id, device=case.device, seconds=known[case.id]) for case in cases]
    for target, device in unexpanded:
        own = [seconds for name, seconds in durations.items() if name.startswith(f"{target}[")]
        found.append(Unit(key=target, device=device, seconds=sum(own) or 1.0))
    return found


def cut(some: Sequence[Unit], shards: int | None) -> ShardPlans:
    """Cut units into `shards` parts of even length; None: as many as make parts of about five minutes.

    Each device has shards of its own, as many as its share of the whole asks for, if there are enough shards. Within
    a device the longest unit goes to the shortest shard, again and again.
    """
    if not some:
        return ShardPlans(shards=(ShardPlan(name="1/1", devices=("cpu",), seconds=0.0, keys=()),))
    groups: dict[tuple[str, ...], list[Unit]] = {}
    devices = sorted({unit.device for unit in some})
    count = max(1, shards or _enough(some, devices))
    for unit in some:
        groups.setdefault((unit.device,) if count >= len(devices) else tuple(devices), []).append(unit)
    parts: list[tuple[tuple[str, ...], list[Unit]]] = []
    for kinds, number in _share(groups, count).items():
        parts += [(kinds, part) for part in _even(groups[kinds], number)]
    named = tuple(
        ShardPlan(
            name=f"{number}/{len(parts)}",
            devices=kinds,
            seconds=sum(unit.seconds for unit in part),
            keys=tuple(unit.key for unit in part),
        )
        for number, (kinds, part) in enumerate(parts, 1)
    )
    return ShardPlans(shards=named)


def unplanned(count: int) -> ShardPlans:
    """`count` shards among which cases are dealt out by their names alone.

    Machines that know different durations, or find different cases, would cut differently, and what no shard takes is
    checked by none; so without a plan that all shards share, durations do not count.
    """
    return ShardPlans(
        shards=tuple(
            ShardPlan(name=f"{number}/{count}", devices=(), seconds=0.0, keys=()) for number in range(1, count + 1)
        )
    )


def parse_shard(text: str) -> tuple[int, int]:
    """`3/8` as numbers. Raises `UsageError`."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise UsageError(f"a shard is a number and a count, such as 3/8; found {text!r}")
    return int(number), int(count)


def in_shard(cases: Iterable[Case], plans: ShardPlans, number: int) -> tuple[Case, ...]:
    """The cases of shard `number` (from 1). A case that the plan does not know goes where its target goes; if it
    does not know that either, to one of the shards for its device, by a checksum of its name."""
    place = {key: position for position, shard in enumerate(plans.shards, 1) for key in shard.keys}
    return tuple(case for case in cases if _place(case, place, plans) == number)


def _place(case: Case, place: Mapping[str, int], plans: ShardPlans) -> int:
    if case.id in place:
        return place[case.id]
    if case.target in place:
        return place[case.target]
    fitting = [position for position, shard in enumerate(plans.shards, 1) if case.device in shard.devices]
    candidates = fitting or range(1, len(plans.shards) + 1)
    return candidates[zlib.crc32(case.id.encode()) % len(candidates)]


def _enough(some: Sequence[Unit], devices: Sequence[str]) -> int:
    by_device = [sum(unit.seconds for unit in some if unit.device == device) for device in devices]
    return min(MAX_SHARDS, sum(max(1, math.ceil(seconds / SHARD_SECONDS)) for seconds in by_device))


def _share(groups: Mapping[tuple[str, ...], Sequence[Unit]], count: int) -> dict[tuple[str, ...], int]:
    """How many shards each group gets: one, and each further one where shards are longest."""
    seconds = {kinds: sum(unit.seconds for unit in group) for kinds, group in groups.items()}
    shares = dict.fromkeys(sorted(groups), 1)
    for _ in range(count - len(shares)):
        open_ones = [kinds for kinds in shares if shares[kinds] < len(groups[kinds])] or list(shares)
        longest = max(open_ones, key=lambda kinds: seconds[kinds] / shares[kinds])
        shares[longest] += 1
    return shares


def _even(some: Sequence[Unit], parts: int) -> list[list[Unit]]:
    filled: list[list[Unit]] = [[] for _ in range(parts)]
    lengths = [(0.0, part) for part in range(parts)]
    for unit in sorted(some, key=lambda each: (-each.seconds, each.key)):
        length, part = heapq.heappop(lengths)
        filled[part].append(unit)
        heapq.heappush(lengths, (length + unit.seconds, part))
    return filled


def _skipped(case: Case, present: Mapping[str, str] | None) -> CaseResult | None:
    if case.settings.skip:
        details = {"reason": case.settings.skip}
        return CaseResult(case=case, outcome=Outcome.SKIPPED, reason="configured", details=details)
    kind = case.device.partition(":")[0]
    missing = "" if present is None else present.get(case.device, present.get(kind, "gradbot does not know it"))
    if missing:
        details = {"device": case.device, "message": missing}
        return CaseResult(case=case, outcome=Outcome.SKIPPED, reason="device_missing", details=details)
    return None


def _unchecked(target: Target, failed: Mapping[str, str]) -> Unchecked:
    if target.module in failed:
        return Unchecked(target=target.id, reason="import_failed", details={"message": failed[target.module]})
    return Unchecked(target=target.id, reason="no_inputs")


def _matches(case_id: str, glob: str) -> bool:
    """Globs match anywhere in an id; brackets in ids are meant literally."""
    pattern = glob.replace("[", "[[]") if "[" in glob else glob
    return fnmatchcase(case_id, f"*{pattern}*")


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
