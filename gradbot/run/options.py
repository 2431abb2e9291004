"""How a run is made, and whom it tells how it goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gradbot.model import CaseResult, Discovery, Run
from gradbot.plan import Plan, Selection, ShardPlans
from gradbot.run import machine

IMPORT_SECONDS = 120.0
"""How long importing one module may take."""


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
