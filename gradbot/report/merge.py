"""Joining reports: of shards, of devices, of attempts. Associative, commutative and idempotent.

Everything is a union in which, of two things with one name, a fixed order decides: of two results for one case, the
newer attempt of the run; of one attempt, the worse outcome, so that nothing bad is hidden. Ties are broken by content.
What follows from the joined results (differences between devices, what was not checked) is worked out anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gradbot import codec
from gradbot.errors import UsageError
from gradbot.model import CaseResult, Outcome, Report, Run, Shard, ShardRun, Target
from gradbot.run.devices import differences

T = TypeVar("T")

_BEST_FIRST = (
    Outcome.SKIPPED,
    Outcome.UNSUPPORTED,
    Outcome.PASSED,
    Outcome.EXPECTED_FAILURE,
    Outcome.INCONCLUSIVE,
    Outcome.UNEXPECTED_PASS,
    Outcome.ERRORED,
    Outcome.TIMED_OUT,
    Outcome.CRASHED,
    Outcome.FAILED,
)
_BADNESS = {outcome: position for position, outcome in enumerate(_BEST_FIRST)}
MERGED = "merged"


def merge(reports: Sequence[Report]) -> Report:
    """One report of several. A single report comes back with its parts in the order that merging gives them.

    Raises `UsageError` where there is none, or where the reports are of different commits.
    """
    if not reports:
        raise UsageError("there is no report to merge")
    _hold_one_commit(reports)
    shard_runs = _shard_runs(reports)
    results = _results(reports)
    checked = {result.case.target for result in results}
    return Report(
        run=_run([report.run for report in reports], shard_runs),
        shard=_shard(reports),
        shards_seen=tuple(each.name for each in shard_runs),
        environments=_union(reports, lambda each: each.environments, lambda each: each.name),
        targets=_targets(reports),
        problems=_union(reports, lambda each: each.problems, lambda each: (each.module, each.path)),
        results=results,
        unchecked=tuple(
            each
            for each in _union(reports, lambda each: each.unchecked, lambda each: each.target)
            if each.target not in checked
        ),
        findings=differences(results),
        notes=_union(reports, lambda each: each.notes, codec.dumps),
        shard_runs=shard_runs,
    )


def missing(report: Report) -> tuple[str, ...]:
    """The shards that should have reported and did not, or were cut short."""
    runs = {each.name: each for each in report.shard_runs}
    cut_short = {name for name, each in runs.items() if each.interrupted}
    if not runs and report.run.interrupted:
        cut_short = set(report.shards_seen)
    seen = set(report.shards_seen) - cut_short
    return tuple(sorted((set(report.shard.expected) - seen) | cut_short, key=_numeric))


def _hold_one_commit(reports: Iterable[Report]) -> None:
    commits = {(each.run.repository, each.run.head_sha) for each in reports if each.run.head_sha}
    if len(commits) > 1:
        named = ", ".join(sorted(f"{repository}@{sha[:12]}" for repository, sha in commits))
        raise UsageError(f"the reports are of different commits ({named}); merge those of one")


def _results(reports: Iterable[Report]) -> tuple[CaseResult, ...]:
    best: dict[str, CaseResult] = {}
    for report in reports:
        for result in report.results:
            other = best.get(result.case.id)
            if other is None or (other is not result and _newer(result, other)):
                best[result.case.id] = result
    return tuple(best[name] for name in sorted(best))


def _newer(one: CaseResult, other: CaseResult) -> bool:
    """Whether `one` stands where both are for the same case."""
    mine, others = (one.run_attempt, _BADNESS[one.outcome]), (other.run_attempt, _BADNESS[other.outcome])
    if mine != others:
        return mine > others
    return one != other and codec.dumps(one) > codec.dumps(other)


def _shard_runs(reports: Iterable[Report]) -> tuple[ShardRun, ...]:
    best: dict[str, ShardRun] = {}
    for report in reports:
        for each in report.shard_runs or _own_runs(report):
            other = best.get(each.name)
            if other is None or _order(each) > _order(other):
                best[each.name] = each
    return tuple(best[name] for name in sorted(best, key=_numeric))


def _own_runs(report: Report) -> tuple[ShardRun, ...]:
    run = report.run
    return tuple(
        ShardRun(name=name, attempt=run.attempt, started=run.started, seconds=run.seconds, interrupted=run.interrupted)
        for name in report.shards_seen or (report.shard.name,)
    )


def _order(each: ShardRun) -> tuple[int, str, bool, float]:
    return each.attempt, each.started, each.interrupted, each.seconds


def _run(runs: Sequence[Run], shard_runs: Sequence[ShardRun]) -> Run:
    """The newest run, over the time that all took together."""
    newest = max(runs, key=lambda each: (each.attempt, codec.dumps(_without_times(each))))
    return replace(
        newest,
        started=min(each.started for each in runs),
        seconds=max(each.seconds for each in shard_runs),
        interrupted=any(each.interrupted for each in shard_runs),
    )


def _without_times(run: Run) -> Run:
    return replace(run, started="", seconds=0.0, interrupted=False)


def _shard(reports: Sequence[Report]) -> Shard:
    expected = {name for report in reports for name in report.shard.expected}
    names = {report.shard.name for report in reports}
    return Shard(
        name=names.pop() if len(names) == 1 else MERGED,
        expected=tuple(sorted(expected, key=_numeric)),
    )


def _targets(reports: Iterable[Report]) -> tuple[Target, ...]:
    """Targets by id; of two, the one that importing has confirmed, else the one that says more."""

    def rank(target: Target) -> tuple[bool, int, str]:
        text = codec.dumps(target)
        return target.seen != "static", len(text), text

    best: dict[str, Target] = {}
    for report in reports:
        for target in report.targets:
            other = best.setdefault(target.id, target)
            if other is not target and other != target and rank(target) > rank(other):
                best[target.id] = target
    return tuple(best[name] for name in sorted(best))


def _union(
    reports: Iterable[Report], part: Callable[[Report], tuple[T, ...]], name: Callable[[T], Hashable]
) -> tuple[T, ...]:
    """The union by name, in the order of the names; of two, the one whose text is greater."""
    best: dict[Any, T] = {}
    for report in reports:
        for item in part(report):
            key = name(item)
            other = best.setdefault(key, item)
            if other is not item and other != item and codec.dumps(item) > codec.dumps(other):
                best[key] = item
    return tuple(best[key] for key in sorted(best))


def _numeric(name: str) -> tuple[int, str]:
    """Sorts `2/10` before `10/10`."""
    number = name.partition("/")[0]
    return (int(number) if number.isdigit() else 0, name)
