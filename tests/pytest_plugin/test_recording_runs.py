"""Recording a real suite: what it keeps, by whichever way it is run, and that the suite ends as before."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pytest_plugin.project import Ran, outcomes, recordings, run_in, run_suite


def test_every_target_that_the_suite_calls_is_kept(recorded: Ran) -> None:
    assert set(recorded.recordings) == {"kernels:Square", "kernels:Wrong", "kernels_test::tripled"}


def test_one_sample_a_shape_and_the_test_that_made_it(recorded: Ran) -> None:
    samples = recorded.recordings["kernels:Square"]
    shapes = [sample["args"][0]["tensor"]["shape"] for sample in samples]
    assert [2] in shapes
    assert all(sample["requires_grad"] for sample in samples)
    assert any(sample["test"].startswith("tests/test_kernels.py::test_square[") for sample in samples)


def test_the_suite_ends_as_it_does_without(plain: Ran, recorded: Ran) -> None:
    assert outcomes(recorded) == outcomes(plain) == "2 failed, 8 passed"


def test_under_xdist_the_same_is_kept(project: Path, recorded: Ran) -> None:
    spread = run_suite(project, "--gradbot-record", "--gradbot-dir", "spread", "-n", "2")
    assert outcomes(spread) == outcomes(recorded)
    assert {name: len(found) for name, found in spread.recordings.items()} == {
        name: len(found) for name, found in recorded.recordings.items()
    }


def test_recording_again_changes_no_file(project: Path, recorded: Ran) -> None:
    assert recorded.recordings
    before = {path: path.read_bytes() for path in (project / "cases").iterdir()}
    again = run_suite(project, "--gradbot-record", "--gradbot-dir", "cases")
    assert "(0 new, 0 dropped)" in again.said
    assert {path: path.read_bytes() for path in (project / "cases").iterdir()} == before


def test_without_being_asked_nothing_happens(project: Path, plain: Ran) -> None:
    assert "gradbot" not in plain.said
    assert plain.report is None
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


IN_PLACE = """
import torch
from kernels import Scaled, Square, Wrong

weight = torch.nn.Parameter(torch.tensor(2.0))
x = torch.randn(3, requires_grad=True)
Scaled.apply(lambda value: weight * value, x, weight)
Wrong.apply(torch.randn(3))
Square.apply(torch.randn(3))
Square.apply(torch.randn(4, requires_grad=True)).sum().backward()
assert x.dtype == torch.float32 and weight.dtype == torch.float32
try:
    Square.apply(None)
except TypeError:
    pass
"""


@pytest.fixture(scope="module")
def in_place(project: Path) -> tuple[int, str, dict[tuple[str, str], str]]:
    """`gradbot record --check` of a script: its exit code, what it said, and outcomes by target and case."""
    (project / "in_place.py").write_text(IN_PLACE)
    done = run_in(project, "gradbot", "record", "--check", "--dir", "in_place", "--", sys.executable, "in_place.py")
    report = json.loads((project / ".gradbot" / "report.json").read_text())
    found = {(each["case"]["target"], each["case"]["name"]): each["outcome"] for each in report["results"]}
    return done.returncode, done.stderr, found


def test_record_check_checks_calls_that_cannot_be_written_on_their_own_objects(
    project: Path, in_place: tuple[int, str, dict[tuple[str, str], str]]
) -> None:
    code, said, found = in_place
    outcome = {target: outcome for (target, _), outcome in found.items()}
    assert outcome == {"kernels:Square": "passed", "kernels:Wrong": "failed", "kernels:Scaled": "passed"}
    assert code == 1, said
    assert set(recordings(project / "in_place")) == {"kernels:Square", "kernels:Wrong"}
    assert "not written: kernels:Scaled: <lambda>" in said


def test_record_check_assumes_nothing_where_another_call_shows_what_requires_grad(
    in_place: tuple[int, str, dict[tuple[str, str], str]],
) -> None:
    _, _, found = in_place
    assert {case for case in found if case[0] != "kernels:Scaled"} == {
        ("kernels:Square", "in-place-0"),
        ("kernels:Wrong", "in-place-assumed-0"),
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
