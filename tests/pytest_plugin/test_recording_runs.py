"""Recording a real suite: what it keeps, by whichever way it is run, and that the suite ends as before."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pytest_plugin.project import make_project, outcomes, run_in

RECORD = ("pytest", "-q", "-p", "no:cacheprovider", "--gradbot-record")
PLAIN = RECORD[:-1]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"))


def recordings(folder: Path) -> dict[str, Any]:
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {file["target"]: file["samples"] for file in files}


@pytest.fixture(scope="module")
def recorded(project: Path) -> tuple[str, dict[str, Any]]:
    done = run_in(project, *RECORD, "--gradbot-dir", "cases")
    return done.stdout, recordings(project / "cases")


def test_every_target_that_the_suite_calls_is_kept(recorded: tuple[str, dict[str, Any]]) -> None:
    assert set(recorded[1]) == {"kernels:Square", "kernels:Wrong", "kernels_test::tripled"}


def test_one_sample_a_shape_and_the_test_that_made_it(recorded: tuple[str, dict[str, Any]]) -> None:
    samples = recorded[1]["kernels:Square"]
    shapes = [sample["args"][0]["tensor"]["shape"] for sample in samples]
    assert [2] in shapes
    assert all(sample["requires_grad"] for sample in samples)
    assert any(sample["test"].startswith("tests/test_kernels.py::test_square[") for sample in samples)


def test_the_suite_ends_as_it_does_without(project: Path, recorded: tuple[str, dict[str, Any]]) -> None:
    plain = run_in(project, *PLAIN)
    told = [line for line in recorded[0].splitlines() if not line.startswith(("gradbot:", "  not written"))]
    assert outcomes("\n".join(told)) == outcomes(plain.stdout)
    assert outcomes(plain.stdout) == "2 failed, 8 passed"


def test_under_xdist_the_same_is_kept(project: Path, recorded: tuple[str, dict[str, Any]]) -> None:
    run_in(project, *RECORD, "-n", "2", "--gradbot-dir", "spread")
    spread = recordings(project / "spread")
    assert {name: len(found) for name, found in spread.items()} == {
        name: len(found) for name, found in recorded[1].items()
    }


def test_recording_again_changes_no_file(project: Path, recorded: tuple[str, dict[str, Any]]) -> None:
    before = {path: path.read_bytes() for path in (project / "cases").iterdir()}
    done = run_in(project, *RECORD, "--gradbot-dir", "cases")
    assert "(0 new, 0 dropped)" in done.stdout
    assert {path: path.read_bytes() for path in (project / "cases").iterdir()} == before


def test_without_being_asked_nothing_happens(project: Path) -> None:
    done = run_in(project, *PLAIN, "-k", "square")
    assert "gradbot" not in done.stdout
    assert not (project / "gradbot_cases").exists()


def test_gradbot_record_records_any_python_command(project: Path) -> None:
    script = project / "train.py"
    script.write_text("import torch, kernels\nkernels.square(torch.ones(4, requires_grad=True)).sum().backward()\n")
    done = run_in(project, "gradbot", "record", "--dir", "trained", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert set(recordings(project / "trained")) == {"kernels:Square"}
    assert "1 samples of 1 targets in trained (1 new, 0 dropped)" in done.stderr


def test_gradbot_record_returns_the_commands_exit_code_and_still_keeps(project: Path) -> None:
    script = project / "dies.py"
    script.write_text(
        "import os, torch, kernels\nkernels.square(torch.ones(4, requires_grad=True))\nos.kill(os.getpid(), 9)\n"
    )
    done = run_in(project, "gradbot", "record", "--dir", "died", "--", sys.executable, "dies.py")
    assert done.returncode == 137
    assert set(recordings(project / "died")) == {"kernels:Square"}


def test_record_check_checks_calls_that_cannot_be_written_on_their_own_objects(project: Path) -> None:
    script = project / "closures.py"
    script.write_text(
        """
import torch
from kernels import Scaled, Square, Wrong

weight = torch.nn.Parameter(torch.tensor(2.0))
x = torch.randn(3, requires_grad=True)
Scaled.apply(lambda value: weight * value, x, weight)
Wrong.apply(x)
Square.apply(x).sum().backward()
assert x.dtype == torch.float32 and weight.dtype == torch.float32
try:
    Square.apply(None)
except TypeError:
    pass
"""
    )
    done = run_in(project, "gradbot", "record", "--check", "--dir", "checked", "--", sys.executable, "closures.py")
    report = json.loads((project / ".gradbot" / "report.json").read_text())
    outcome = {result["case"]["target"]: result["outcome"] for result in report["results"]}
    assert outcome == {"kernels:Square": "passed", "kernels:Wrong": "failed", "kernels:Scaled": "passed"}
    assert done.returncode == 1, done.stderr
    assert set(recordings(project / "checked")) == {"kernels:Square", "kernels:Wrong"}
    assert "not written: kernels:Scaled: <lambda>" in done.stderr


def test_record_check_assumes_nothing_where_another_call_shows_what_requires_grad(project: Path) -> None:
    script = project / "forwards.py"
    script.write_text(
        """
import torch
from kernels import Square, Wrong

Wrong.apply(torch.randn(3))
Square.apply(torch.randn(3))
Square.apply(torch.randn(4, requires_grad=True))
"""
    )
    run_in(project, "gradbot", "record", "--check", "--dir", "forwards", "--", sys.executable, "forwards.py")
    report = json.loads((project / ".gradbot" / "report.json").read_text())
    names = {(each["case"]["target"], each["case"]["name"], each["outcome"]) for each in report["results"]}
    assert names == {
        ("kernels:Square", "in-place-0", "passed"),
        ("kernels:Wrong", "in-place-assumed-0", "failed"),
    }


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("--", "no-such-program"), "cannot run no-such-program"),
        (("-p", "no_such_package", "--", sys.executable, "-c", "1"), "no_such_package"),
    ],
)
def test_a_bad_command_line_is_one_clear_line(project: Path, command: tuple[str, ...], says: str) -> None:
    done = run_in(project, "gradbot", "record", *command)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
