"""One run: collect, plan, give the cases to workers, try failing ones again, and put everything into a report."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from gradbot import codec, messages
from gradbot.errors import UsageError
from gradbot.model import (
    Attempts,
    Case,
    CaseResult,
    Crash,
    Discovery,
    Environment,
    Note,
    Outcome,
    Report,
    Run,
    Shard,
    TargetKind,
)
from gradbot.plan import (
    Plan,
    Selection,
    ShardPlans,
    estimates,
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
from gradbot.run.pool import Ended, Pool, PoolOptions, Task
from gradbot.run.secrets import without_secrets
from gradbot.run.settling import settle

BAD = frozenset({Outcome.FAILED, Outcome.ERRORED, Outcome.CRASHED, Outcome.TIMED_OUT})
IMPORT_SECONDS = 120.0
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


class Progress(Protocol):
    """Is told how a run goes."""

    def planned(self, plan: Plan, discovery: Discovery, workers: int) -> None: ...
    def stage(self, case_id: str, stage: str) -> None: ...
    def finished(self, result: CaseResult) -> None: ...
    def retried(self, result: CaseResult) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run is made. `memory_limit` is in bytes: None for a fair share of the machine, 0 for no limit.

    `config` is what workers need of the configuration, as they read it. `timeout_of` gives the seconds that a case of
    a target may take, `selects` tells which targets are wanted at all, `selects_rule` which
    rules count, `names` are those that were asked for by id or
    alias. `output` is where the journal and a killed run's report go.
    """

    root: Path
    run: Run
    output: Path | None = None
    selection: Selection = field(default_factory=Selection)
    names: tuple[str, ...] = ()
    selects: Callable[[str], bool] = lambda _target: True
    selects_rule: Callable[[str], bool] = lambda _kind: True
    jobs: int = 0
    memory_limit: int | None = None
    python: str = sys.executable
    retries: int = 2
    interpret_triton: bool = True
    durations: Mapping[str, float] = field(default_factory=dict)
    shard: tuple[int, int] = (1, 1)
    shard_plans: ShardPlans | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    timeout_of: Callable[[str], float] = lambda _target: 60.0
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    fork: bool = sys.platform == "linux"

    @property
    def workers(self) -> int:
        """How many workers run at once on the CPU."""
        return self.jobs or machine.cores()


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
            results = _Results(pool, plan, collected, options, progress, record)
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


class _Results:
    """Runs the cases of a plan, tries failing ones again, and keeps what came of it."""

    def __init__(
        self,
        pool: Pool,
        plan: Plan,
        collected: Collected,
        options: Options,
        progress: Progress,
        journal: Journal | None,
    ) -> None:
        self._pool, self._plan, self._collected, self._options = pool, plan, collected, options
        self._progress, self._journal = progress, journal
        self._modules = {target.id: target.module for target in collected.discovery.targets}
        self._imports = _imports(collected.discovery)
        self._results: dict[str, CaseResult] = {}
        self._retries: dict[str, list[tuple[int, bool]]] = {}
        self.notes: list[Note] = []
        for result in plan.skipped:
            self._keep(replace(result, run_attempt=options.run.attempt))

    def all(self) -> tuple[CaseResult, ...]:
        """Every result so far, in the order of the cases' ids."""
        return tuple(self._results[name] for name in sorted(self._results))

    def run(self) -> None:
        """Run everything."""
        expected = estimates(self._plan.cases, self._options.durations)
        for case in self._plan.cases:
            death = self._collected.death_of(case)
            if death is None:
                self._pool.submit(self._task(case, case.id, seconds=expected[case.id]))
            else:
                died = replace(_died(case, death), worker="cpu", run_attempt=self._options.run.attempt)
                self._keep(died)
                self._progress.finished(self._results[case.id])
        for ended in self._pool.run():
            self._take(ended)
        self._pool.drain()
        self._settle_bad_exits()

    def _task(self, case: Case, key: str, *, seconds: float = 0.0, fresh: bool = False, alone: bool = False) -> Task:
        timeout = self._options.timeout_of(case.target)
        message = {
            "do": "case",
            "case": codec.encode(case),
            "root": str(self._options.root),
            "modules": self._imports.get(case.target, ()),
        }
        return Task(
            key=key,
            message=message,
            device=case.device,
            timeout=timeout,
            import_timeout=max(timeout, IMPORT_SECONDS),
            seconds=seconds,
            fresh=fresh,
            alone=alone,
            module=self._modules.get(case.target, "") or case.target,
        )

    def _take(self, ended: Ended) -> None:
        result = self._result(ended)
        case_id, retry, _ = ended.task.key.partition("\n")
        if retry:
            self._retried(case_id, result)
            return
        self._keep(result)
        self._progress.finished(result)
        if result.outcome in BAD:
            self._retry(result)

    def _result(self, ended: Ended) -> CaseResult:
        case = codec.decode(ended.task.message["case"], Case)
        run = self._options.run
        if ended.crash is not None:
            result = _died(case, ended.crash)
        else:
            assert ended.reply is not None
            body = ended.reply["body"]
            result = codec.decode(body["result"], CaseResult) if "result" in body else _broken(case, body, ended)
        result = settle(result, self._options.root.resolve(), self._options.selects_rule)
        return replace(result, worker=ended.lane, seconds=ended.seconds, run_attempt=run.attempt)

    def _keep(self, result: CaseResult) -> None:
        self._results[result.case.id] = result
        if self._journal is not None:
            self._journal.add(result)

    def _retry(self, result: CaseResult) -> None:
        """Again with the same seed, then with others, each time in a process of its own."""
        times = min(1, self._options.retries) if result.outcome is Outcome.TIMED_OUT else self._options.retries
        if not times:
            return
        self._retries[result.case.id] = [(result.case.seed, True)]
        for number in range(times):
            case = replace(result.case, seed=result.case.seed + number)
            self._pool.submit(self._task(case, f"{case.id}\n{number}", fresh=True, seconds=result.seconds))

    def _retried(self, case_id: str, result: CaseResult) -> None:
        runs = self._retries[case_id]
        runs.append((result.case.seed, result.outcome in BAD))
        first = self._results[case_id]
        attempts = Attempts(
            runs=len(runs), failures=sum(failed for _, failed in runs), seeds=tuple(seed for seed, _ in runs)
        )
        self._keep(replace(first, attempts=attempts))
        self._progress.retried(self._results[case_id])

    def _settle_bad_exits(self) -> None:
        """Workers that died at their end: find out whose exit handler it was, each suspect alone in a process."""
        deaths, self._pool.bad_exits = self._pool.bad_exits, []
        suspects = {task.key.partition("\n")[0]: task for death in deaths for task in death.suspects}
        for case_id, task in suspects.items():
            self._pool.submit(replace(task, key=case_id, fresh=True, alone=True))
        found = False
        for ended in self._pool.run():
            if ended.crash is not None and ended.crash.stage == "exit":
                found = True
                self._keep(replace(self._results[ended.task.key], outcome=Outcome.CRASHED, crash=ended.crash))
        for death in deaths[:1] if not found else ():
            self.notes.append(Note(code="worker_exit", details={"message": messages.crash_text(death.crash)}))


def _died(case: Case, crash: Crash) -> CaseResult:
    outcome = Outcome.TIMED_OUT if crash.cause == "timeout" else Outcome.CRASHED
    return CaseResult(case=case, outcome=outcome, crash=crash)


def _broken(case: Case, body: Mapping[str, Any], ended: Ended) -> CaseResult:
    """The worker answered, but not with a result: an exception that came through gradbot itself."""
    crash = Crash(
        cause="exception", stage="worker", message=str(body.get("broken", ""))[:500], output_tail=ended.output_tail
    )
    return CaseResult(case=case, outcome=Outcome.ERRORED, crash=crash)


def _imports(discovery: Discovery) -> dict[str, list[object]]:
    """By target, the modules that must be imported before it is there: its own; for an op all that make targets in
    its package, for kernels and formulas may be registered anywhere."""
    broken = {problem.module for problem in discovery.problems}
    modules = [module for module in discovery.modules if module.name not in broken]
    found: dict[str, list[object]] = {}
    for target in discovery.targets:
        if target.kind is TargetKind.OP:
            package = target.module.partition(".")[0]
            wanted = [each for each in modules if each.makes_targets and each.name.partition(".")[0] == package]
            wanted = wanted if package else modules
        else:
            wanted = [each for each in modules if each.name == target.module]
        found[target.id] = [codec.encode(each) for each in wanted]
    return found
