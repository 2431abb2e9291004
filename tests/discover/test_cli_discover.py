"""`gradbot discover` on the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from small_projects import BODY, TORCH, target, write

from gradbot import codec
from gradbot.cli.main import run
from gradbot.errors import ExitCode
from gradbot.model import Discovery

SQUARE = f"{TORCH}class Square(Function):{BODY}"
LATE = "import torch\nfor n in 'ab':\n    torch.library.define(f'cli_late::{n}', '(Tensor x) -> Tensor')\n"
FILES = {
    "pyproject.toml": "[tool.gradbot]\nexclude = []\n",
    "src/kernels/__init__.py": SQUARE,
    "src/kernels/deadly.py": f"import os, signal\n{SQUARE}\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "src/kernels/late.py": LATE,
    "tests/cases.py": """
        import torch, gradbot, kernels
        @gradbot.cases(kernels.Square)
        def square():
            yield gradbot.Sample(torch.ones(2)).named("two")
    """,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write(tmp_path, FILES))
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.mark.slow
def test_sources_and_imports_together(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["discover", "--json", "found.json"]) == ExitCode.RIGHT
    found = codec.loads((project / "found.json").read_text(), Discovery)
    seen = {each.id: each.seen for each in found.targets}
    assert seen == {
        "kernels:Square": "both",
        "kernels.deadly:Square": "static",
        "cli_late::a": "runtime",
        "cli_late::b": "runtime",
    }
    assert found.case_ids == {"kernels:Square": ("kernels:Square[two]cpu:float32",)}
    (problem,) = found.problems
    assert problem.module == "kernels.deadly"
    assert problem.crash is not None
    assert problem.crash.signal == "SIGSEGV"
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line.split() for line in lines if line.startswith("kernels:Square ")]
    assert row == ["kernels:Square", "src/kernels/__init__.py:3", "backward", "1"]
    assert any("kernels.deadly:Square" in line and "not seen at import" in line for line in lines)
    assert any(line.startswith("could not import kernels.deadly: ") for line in lines)
    assert lines[-1] == "2 Functions, 2 ops · 1 with cases, 3 without · 1 not imported"


def test_sources_only_run_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["discover", "kernels", "--static-only", "--json", "-"]) == ExitCode.RIGHT
    found = codec.loads(capsys.readouterr().out, Discovery)
    assert target(found, "kernels.deadly:Square").seen == "static"
    assert found.declared == {"kernels:Square": ("tests/cases.py:4",)}
    assert found.problems == ()


@pytest.mark.slow
def test_an_interpreter_without_torch_still_reads_the_sources(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = project / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    assert run(["discover", "src/kernels", "--python", str(bare)]) == ExitCode.RIGHT
    out = " ".join(capsys.readouterr().out.split())
    assert "note: nothing was imported, this is what the sources say:" in out
    assert "2 Functions · 1 with cases, 1 without" in out


def test_the_packages_of_another_interpreter(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, {"site/only_there.py": SQUARE})
    other = project / "other"
    other.write_text(f'#!/bin/sh\nPYTHONPATH={project / "site"} exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    assert run(["discover", "only_there", "--python", str(other), "--static-only"]) == ExitCode.RIGHT
    assert "only_there:Square" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no_such_thing"], "no package, folder or file 'no_such_thing'"),
        ([".", "--python", "/nowhere/python"], "cannot run the interpreter /nowhere/python"),
        ([".", "--config", "none.toml"], "no configuration file none.toml"),
        ([".", "--static-only", "--json", "/nowhere/x.json"], "cannot write /nowhere/x.json"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(["discover", *arguments]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_an_empty_project_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["discover", "--static-only"]) == ExitCode.RIGHT
    assert capsys.readouterr().out.splitlines()[-1] == "no custom Functions or registered ops found"
    assert os.listdir(tmp_path) == []
