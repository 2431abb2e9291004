"""Running the cases of a plan: every one once, failing ones again, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gradbot import codec, messages
from gradbot.model import Attempts, Case, CaseResult, CheckResult, Crash, Discovery, Note, Outcome, TargetKind
from gradbot.plan import Plan, estimates
from gradbot.run.collecting import Collected
from gradbot.run.journal import Journal
from gradbot.run.options import IMPORT_SECONDS, Options, Progress
from gradbot.run.pool import Ended, Pool, Task
from gradbot.run.settling import settle

BAD = frozenset({Outcome.FAILED, Outcome.ERRORED, Outcome.CRASHED, Outcome.TIMED_OUT})


class Results:
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
            checks = tuple(codec.decode(each, CheckResult) for each in ended.checks)
            result = _died(case, ended.crash, checks)
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


def _died(case: Case, crash: Crash, checks: tuple[CheckResult, ...] = ()) -> CaseResult:
    """A case that ended with its process. `checks` are those that it had finished before."""
    outcome = Outcome.TIMED_OUT if crash.cause == "timeout" else Outcome.CRASHED
    return CaseResult(case=case, outcome=outcome, crash=crash, checks=checks)


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
