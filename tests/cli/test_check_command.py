"""`gradbot check`, `plan` and `merge` from the command line: exit codes, files, and what is printed."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

import pytest
from run.projects import command, write

from gradbot import codec
from gradbot.cli import main
from gradbot.discover import static
from gradbot.errors import ExitCode
from gradbot.model import Outcome, Report
from gradbot.report.merge import missing

OPS = """
import torch


class Right(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.cos()


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class Unknown(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output
"""

CASES = """
import os
import torch
import gradbot
from ops import Right, Wrong


@gradbot.cases(Right, checks=["backward"])
def right():
    print("::error::from user code")
    assert "GITHUB_TOKEN" not in os.environ
    parent = open(f"/proc/{os.getppid()}/environ").read()
    assert "hunter2" not in parent
    yield gradbot.Sample(torch.randn(3, dtype=torch.float64)).named("sines")


@gradbot.cases(Wrong, checks=["backward"])
def wrong():
    yield gradbot.Sample(torch.randn(3, dtype=torch.float64)).named("::error::doubles")
"""


SHADOW = "raise RuntimeError('the user has a module of this name')"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("project"), {"ops.py": OPS, "cases_ops.py": CASES, "json.py": SHADOW})


def gradbot(root: Path, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    process = command(root, *arguments, env=env)
    output, errors = process.communicate(timeout=300)
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


@pytest.fixture(scope="module")
def everything(project: Path) -> subprocess.CompletedProcess[str]:
    env = {"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_TOKEN": "hunter2", "ACTIONS_RUNTIME_TOKEN": "hunter2"}
    return gradbot(project, "check", "--junit-xml", "j/unit.xml", "--json", "copy.json", "--jobs", "2", env=env)


def test_something_wrong_is_1(everything: subprocess.CompletedProcess[str]) -> None:
    assert everything.returncode == ExitCode.WRONG, everything.stderr


def test_the_reports_are_written(project: Path, everything: subprocess.CompletedProcess[str]) -> None:
    report = codec.loads((project / ".gradbot" / "report.json").read_bytes(), Report)
    assert {result.case.name: result.outcome for result in report.results} == {
        "sines": Outcome.PASSED,
        "::error::doubles": Outcome.FAILED,
    }
    assert (project / "copy.json").read_bytes() == (project / ".gradbot" / "report.json").read_bytes()
    assert ET.parse(project / "j" / "unit.xml").getroot().tag == "testsuites"
    assert (project / ".gradbot" / "report.html").read_text("utf-8").startswith("<!")
    assert not (project / ".gradbot" / "journal.jsonl").exists()
    assert (project / ".gradbot" / ".gitignore").read_text() == "*\n"


def test_places_are_relative_to_the_project(project: Path, everything: subprocess.CompletedProcess[str]) -> None:
    report = codec.loads((project / ".gradbot" / "report.json").read_bytes(), Report)
    assert {target.location.path for target in report.targets if target.location} == {"ops.py"}


def test_what_has_no_inputs_is_unchecked_and_not_counted(project: Path, everything: object) -> None:
    report = codec.loads((project / ".gradbot" / "report.json").read_bytes(), Report)
    assert [(each.target, each.reason) for each in report.unchecked] == [("ops:Unknown", "no_inputs")]


def test_secrets_are_out_of_reach(project: Path, everything: subprocess.CompletedProcess[str]) -> None:
    report = codec.loads((project / ".gradbot" / "report.json").read_bytes(), Report)
    assert "sines" in {result.case.name for result in report.results if result.outcome is Outcome.PASSED}
    assert "hunter2" not in everything.stdout + everything.stderr


def test_in_ci_lines_are_plain_and_the_runner_takes_no_orders(everything: subprocess.CompletedProcess[str]) -> None:
    lines = everything.stdout.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("::stop-commands::"))
    token = lines[start].removeprefix("::stop-commands::")
    assert start == 0
    assert lines[-1] == f"::{token}::"
    assert any("1/2" in line for line in lines)
    assert "\x1b" not in everything.stdout


def test_nothing_wrong_is_0(project: Path) -> None:
    done = gradbot(project, "check", "ops:Right", "-q")
    assert done.returncode == ExitCode.RIGHT, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 1
    report = codec.loads((project / ".gradbot" / "report.json").read_bytes(), Report)
    assert [target.id for target in report.targets] == ["ops:Right"]


def test_nothing_checked_is_3(project: Path) -> None:
    assert gradbot(project, "check", "-k", "nothing-is-called-so", "-q").returncode == ExitCode.NOTHING_CHECKED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "no_such_package_anywhere"], "no_such_package_anywhere"),
        (["check", "--device", "gpu0"], "device"),
        (["check", "--dtype", "float63"], "float64"),
        (["check", "--shard", "9/8"], "3/8"),
        (["check", "--jobs", "many"], "--jobs"),
        (["check", "--memory-limit", "much"], "4 GiB"),
        (["check", "--plan", "missing.json", "--shard", "1/2"], "missing.json"),
        (["check", "--no-such-option"], "no-such-option"),
        (["check", "--config", "missing.toml"], "missing.toml"),
        (["check", "--python", "/bin/true"], "/bin/true"),
        (["plan", "--shards", "few"], "--shards"),
        (["merge", "missing.json"], "missing.json"),
    ],
)
def test_bad_usage_is_2_and_one_clear_line(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(project)
    assert main.run(arguments) == ExitCode.USAGE
    errors = capfd.readouterr().err
    assert message in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--case", "no-such-case"], "no-such-case"),
        (["ops:Rihgt"], "did you mean ops:Right?"),
        (["--python", "/bin/true"], "/bin/true"),
    ],
)
def test_a_run_that_never_began_says_why_and_leaves_the_last_report(
    project: Path, everything: object, arguments: list[str], says: str
) -> None:
    names = ("report.json", "junit.xml", "report.html")
    files = [project / ".gradbot" / name for name in names]
    for path in files:
        path.write_text(f"kept {path.name}")
    done = gradbot(project, "check", *arguments)
    assert done.returncode == ExitCode.USAGE
    assert says in done.stderr
    assert [path.read_text() for path in files] == [f"kept {name}" for name in names]


def test_gradbot_itself_broken_is_4(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(static, "scan", lambda *_, **__: 1 / 0)
    assert main.run(["check"]) == ExitCode.BROKEN
    assert "gradbot itself broke" in capfd.readouterr().err


def test_shards_are_planned_run_and_joined(project: Path) -> None:
    planned = gradbot(project, "plan", "--shards", "2", "--format", "github-matrix", "--output", "plan.json")
    rows = json.loads(planned.stdout)["include"]
    assert [(row["shard"], row["device"]) for row in rows] == [("1/2", "cpu"), ("2/2", "cpu")]
    codes = [
        gradbot(
            project, "check", "--plan", "plan.json", "--shard", row["shard"], "--json", f"s{row['index']}.json", "-q"
        ).returncode
        for row in rows
    ]
    assert sorted(codes) == [ExitCode.RIGHT, ExitCode.WRONG]
    half = gradbot(project, "merge", "s1.json", "-o", "half.json")
    assert half.returncode == ExitCode.WRONG
    assert missing(codec.loads((project / "half.json").read_bytes(), Report)) == ("2/2",)
    assert "2/2" in half.stderr
    whole = gradbot(project, "merge", "s*.json", "-o", "whole.json")
    joined = codec.loads((project / "whole.json").read_bytes(), Report)
    assert whole.returncode == ExitCode.WRONG
    assert missing(joined) == ()
    assert {result.case.target for result in joined.results} == {"ops:Right", "ops:Wrong"}


GPU_ONLY = """
import os
import torch

if not os.environ.get("PRETEND_GPU"):
    raise ImportError("needs a GPU")


class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output
"""

GPU_CASES = """
import torch
import gradbot
from fused import Fused


@gradbot.cases(Fused, checks=["backward"])
def fused():
    for size in (1, 2, 3):
        yield gradbot.Sample(torch.randn(size, dtype=torch.float64))
"""


def test_what_imports_on_another_machine_only_is_planned_here_and_expanded_there(tmp_path: Path) -> None:
    root = write(tmp_path, {"fused.py": GPU_ONLY, "cases_fused.py": GPU_CASES})
    gradbot(root, "plan", "--shards", "1", "--output", "plan.json")
    plan = json.loads((root / "plan.json").read_text())
    assert [shard["keys"] for shard in plan["shards"]] == [["fused:Fused"]]
    there = gradbot(root, "check", "--plan", "plan.json", "--shard", "1/1", "-q", env={"PRETEND_GPU": "1"})
    assert there.returncode == ExitCode.RIGHT, there.stdout + there.stderr
    report = codec.loads((root / ".gradbot" / "report.json").read_bytes(), Report)
    assert len(report.results) == 3
