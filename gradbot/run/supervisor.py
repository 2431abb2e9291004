"""One run: collect, plan, give the cases to workers, try failing ones again, and put everything into a report."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gradbot import codec
from gradbot.errors import UsageError
from gradbot.model import (
    Discovery,
    Environment,
    Note,
    Report,
    Shard,
)
from gradbot.plan import (
    Plan,
    hold_cases,
    in_shard,
    make_plan,
    resolve_targets,
    unplanned,
)
from gradbot.run import machine
from gradbot.run.collecting import Collected, collect
from gradbot.run.devices import differences
from gradbot.run.guard import Guard
from gradbot.run.journal import Journal, interrupted
from gradbot.run.lanes import cpu_lane, lanes_for, presence, uses_triton
from gradbot.run.launch import Launch
from gradbot.run.options import IMPORT_SECONDS, Options, Progress
from gradbot.run.pool import Pool, PoolOptions
from gradbot.run.results import Results
from gradbot.run.secrets import without_secrets

__all__ = ["Options", "Progress", "collect_only", "run", "worker_environment"]

WORKER = "gradbot.worker.main"
JOURNAL = "journal.jsonl"

LIGHT_CHECKS = frozenset({"backward", "determinism", "side_effects", "grad_outputs", "undefined_grad"})
USED_BY_OTHER_CHECKS = (
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.testing._internal.optests",
    "torch._decomp.decompositions_for_jvp",
    "numpy.ma",
)
"""What the first check of a process that batches, traces or uses forward mode makes torch import: seconds, which would
seem to be the case's own."""


def run(discovery: Discovery, options: Options, progress: Progress) -> Report:
    """Check everything that was discovered and asked for. An interrupt ends the run early, with a report."""
    if os.name != "posix":
        raise UsageError(
            "gradbot checks on Linux and macOS only; on Windows, use WSL, or `gradbot report` and `publish`"
        )
    began = time.monotonic()
    token = uuid.uuid4().hex
    triton = options.interpret_triton and uses_triton(discovery, options.root)
    with _guarded(token, options), Pool(_pool_options(options, token, triton)) as pool, _interruptible(pool):
        collected = _collect(pool, discovery, options)
        if collected is None:
            return interrupted(Report(run=options.run, targets=discovery.targets))
        plan = _planned(pool, collected, options)
        progress.planned(plan, collected.discovery, options.workers)
        report = _report_of(plan, collected, options, triton)
        with _recorded(report, options) as record:
            results = Results(pool, plan, collected, options, progress, record)
            results.run()
        report = replace(
            report,
            run=replace(report.run, seconds=time.monotonic() - began),
            environments=_environments(pool),
            results=results.all(),
            findings=differences(results.all()),
            notes=(*report.notes, *results.notes),
        )
        return interrupted(report) if pool.stopped else report


def collect_only(discovery: Discovery, options: Options) -> tuple[Collected, Plan] | None:
    """What `run` would check: for `gradbot plan`. None if it was interrupted."""
    triton = options.interpret_triton and uses_triton(discovery, options.root)
    token = uuid.uuid4().hex
    with _guarded(token, options), Pool(_pool_options(options, token, triton)) as pool, _interruptible(pool):
        collected = _collect(pool, discovery, options)
        if collected is None:
            return None
        return collected, _everything(collected, options, None)


def _pool_options(options: Options, token: str, triton: bool) -> PoolOptions:
    workers = options.workers
    threads = max(1, machine.cores() // workers)
    limit = machine.default_memory_limit(workers) if options.memory_limit is None else options.memory_limit
    launch = Launch(
        python=options.python,
        env=worker_environment(options.environ, threads),
        cwd=str(options.root),
        module=WORKER,
        arguments=(str(limit), str(threads)),
        fork=options.fork,
    )
    lane = cpu_lane(workers, interpret_triton=triton)
    return PoolOptions(launch=launch, lanes=(lane,), token=token, memory_limit=limit)


def worker_environment(environ: Mapping[str, str], threads: int) -> dict[str, str]:
    """What workers see: no secrets, and as many threads for each library as a worker has cores."""
    count = str(threads)
    return {
        **without_secrets(environ),
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "NUMEXPR_NUM_THREADS": count,
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }


def _collect(pool: Pool, discovery: Discovery, options: Options) -> Collected | None:
    return collect(
        pool,
        discovery,
        {"root": str(options.root), "config": options.config},
        timeout=max(60.0, options.timeout_of("")),
        import_timeout=IMPORT_SECONDS,
    )


def _everything(collected: Collected, options: Options, present: Mapping[str, str] | None) -> Plan:
    """The plan of the whole run. Raises `UsageError` for a target or case that was named and is not there."""
    targets = [target for target in collected.discovery.targets if options.selects(target.id)]
    selection = replace(options.selection, targets=resolve_targets(options.names, targets))
    hold_cases(selection, collected.cases)
    return make_plan(
        collected.cases,
        targets,
        collected.discovery.problems,
        selection=selection,
        seed=options.run.seed,
        present=present,
    )


def _planned(pool: Pool, collected: Collected, options: Options) -> Plan:
    """The plan of this shard; the pool gets the lanes that it needs."""
    there = next(iter(pool.descriptions.values()), {})
    plan = _everything(collected, options, presence(there))
    number, count = options.shard
    if count > 1:
        everything = [*plan.cases, *(result.case for result in plan.skipped)]
        plans = options.shard_plans or unplanned(count)
        mine = {case.id for case in in_shard(everything, plans, number)}
        plan = replace(
            plan,
            cases=tuple(case for case in plan.cases if case.id in mine),
            skipped=tuple(result for result in plan.skipped if result.case.id in mine),
        )
    devices = {case.device for case in plan.cases}
    pool.set_lanes(lanes_for(devices, there, pool.lanes[0], options.environ))
    if any(not case.settings.checks or set(case.settings.checks) - LIGHT_CHECKS for case in plan.cases):
        pool.preload(USED_BY_OTHER_CHECKS)
    return plan


def _report_of(plan: Plan, collected: Collected, options: Options, triton: bool) -> Report:
    number, count = options.shard
    shard = Shard(name=f"{number}/{count}", expected=tuple(f"{each}/{count}" for each in range(1, count + 1)))
    notes = [Note(code="discovery", details={"message": text}) for text in collected.discovery.notes]
    if triton:
        notes.append(Note(code="triton_interpreted"))
    told = {case.target for case in (*plan.cases, *(result.case for result in plan.skipped))}
    told |= {each.target for each in plan.unchecked}
    return Report(
        run=options.run,
        shard=shard,
        shards_seen=(shard.name,),
        targets=tuple(target for target in collected.discovery.targets if target.id in told),
        problems=collected.discovery.problems,
        unchecked=plan.unchecked,
        notes=tuple(notes),
    )


@contextlib.contextmanager
def _guarded(token: str, options: Options) -> Iterator[None]:
    """A guard that cleans up, and makes a report of the journal, should this process be killed."""
    paths = (options.output / JOURNAL, options.output / "report.json") if options.output is not None else None
    guard = Guard(token, paths)
    try:
        yield
    finally:
        guard.done()


@contextlib.contextmanager
def _recorded(report: Report, options: Options) -> Iterator[Journal | None]:
    """A journal for the time of the run."""
    if options.output is None:
        yield None
        return
    journal = Journal(options.output / JOURNAL, report)
    try:
        yield journal
    finally:
        journal.close()


@contextlib.contextmanager
def _interruptible(pool: Pool) -> Iterator[None]:
    """SIGINT and SIGTERM stop the pool; a second one is as usual."""

    def stop(number: int, _frame: object) -> None:
        pool.stopped = True
        signal.signal(number, kept[number])

    kept: dict[int, Any] = {}
    try:
        for each in (signal.SIGINT, signal.SIGTERM):
            kept[each] = signal.signal(each, stop)
    except ValueError:  # not the main thread: whoever owns that handles signals
        pass
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _environments(pool: Pool) -> tuple[Environment, ...]:
    described = []
    for name, event in sorted(pool.descriptions.items()):
        if event.get("environment"):
            described.append(replace(codec.decode(event["environment"], Environment), name=name))
    return tuple(described)
