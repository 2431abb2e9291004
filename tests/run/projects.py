"""Small projects that tests write to a folder: what user code looks like when it goes wrong for real."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import textwrap
from collections.abc import Mapping
from pathlib import Path

from gradbot import codec
from gradbot.config import load
from gradbot.discover import static
from gradbot.model import CaseResult, Discovery, Report, Run
from gradbot.plan import Plan
from gradbot.run import supervisor

SCALE = '''
import torch


class Scale(torch.autograd.Function):
    """factor * x, whose backward does what `misbehave` does first."""

    @staticmethod
    def forward(ctx, x, factor, misbehave, where):
        ctx.factor, ctx.misbehave, ctx.where = factor, misbehave, where
        if where == "forward":
            misbehave()
        return factor * x

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.where == "backward":
            ctx.misbehave()
        return ctx.factor * grad_output, None, None, None
'''


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write files (paths relative to `root`) and mark the folder as a project."""
    for name, content in {"pyproject.toml": "[project]\nname = 'p'\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(content), encoding="utf-8")
    return root


class Silent:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.plan = Plan()

    def planned(self, plan: Plan, discovery: Discovery, workers: int) -> None:
        self.plan = plan

    def stage(self, case_id: str, stage: str) -> None:
        pass

    def finished(self, result: CaseResult) -> None:
        self.order.append(result.case.id)

    def retried(self, result: CaseResult) -> None:
        pass


def check(root: Path, *places: str, progress: Silent | None = None, **options: object) -> Report:
    """Run the supervisor with real workers on a project."""
    overrides = {name: options.pop(name) for name in ("devices", "timeout", "checks") if name in options}
    config = load(None, root, overrides, {})
    made = {
        "root": root,
        "run": Run(),
        "jobs": 1,
        "retries": 0,
        "config": codec.encode(config),
        "timeout_of": lambda target: config.settings_for(target).timeout,
        **options,
    }
    found = static.scan(places or (".",), root=root)
    return supervisor.run(found, supervisor.Options(**made), progress or Silent())  # type: ignore[arg-type]


def command(
    root: Path, *arguments: str, env: Mapping[str, str] | None = None, **options: object
) -> subprocess.Popen[str]:
    """Start the command line in a project."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI", "GRADBOT_"))}
    return subprocess.Popen(
        [str(Path(sysconfig.get_path("scripts")) / "gradbot"), *arguments],
        cwd=root,
        env={**clean, "OMP_NUM_THREADS": "1", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )
