"""Code that is not ours: one command over three public packages and torch's own custom ops gives the true verdicts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gradbot import codec
from gradbot.model import CaseResult, CheckResult, Outcome, Report

HERE = Path(__file__).resolve().parent


def check(folder: Path, *arguments: str) -> tuple[int, Report]:
    command = [sys.executable, "-m", "gradbot", "check", *arguments, "--jobs", "2", "-q"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    path = folder / ".gradbot" / "report.json"
    assert path.exists(), done.stderr
    return done.returncode, codec.loads(path.read_bytes(), Report)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Report]:
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(HERE / "real_cases.py", folder / "real_cases.py")
    (folder / "pyproject.toml").write_text(
        '[tool.gradbot]\npackages = ["entmax", "roma", "zuko"]\ncases = ["real_cases.py"]\n'
    )
    return check(folder)


def result(report: Report, target: str, name: str = "") -> CaseResult:
    (found,) = [each for each in report.results if each.case.target == target and name in ("", each.case.name)]
    return found


def outcome(found: CaseResult, check: str) -> CheckResult:
    return next(each for each in found.checks if each.check == check)


RIGHT = [
    ("entmax.activations:SparsemaxFunction", "top-2"),
    ("entmax.activations:Entmax15Function", ""),
    ("entmax.root_finding:SparsemaxBisectFunction", ""),
    ("entmax.root_finding:EntmaxBisectFunction", ""),
    ("entmax.root_finding:NormmaxBisectFunction", "number"),
    ("entmax.root_finding:BudgetBisectFunction", "number"),
    ("entmax.losses:SparsemaxLossFunction", ""),
    ("entmax.losses:Entmax15LossFunction", ""),
    ("roma.mappings:_ProcrustesManualDerivatives", ""),
    ("real_cases:cubic", ""),
    ("real_cases:integral", ""),
]


@pytest.mark.parametrize(("target", "name"), RIGHT)
def test_right_first_derivatives_pass(packages: tuple[int, Report], target: str, name: str) -> None:
    assert outcome(result(packages[1], target, name), "backward").outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("entmax.root_finding:NormmaxBisectFunction", "tensor-alpha"),
        ("entmax.root_finding:BudgetBisectFunction", "tensor-budget"),
    ],
)
def test_none_for_a_differentiable_input_is_found(packages: tuple[int, Report], target: str, name: str) -> None:
    backward = outcome(result(packages[1], target, name), "backward")
    assert backward.outcome is Outcome.FAILED
    (finding,) = backward.findings
    assert finding.input == 1
    assert finding.diagnosis is not None
    assert finding.diagnosis.pattern == "none_gradient"


def test_a_wrong_double_backward_is_found(packages: tuple[int, Report]) -> None:
    found = outcome(result(packages[1], "entmax.root_finding:EntmaxBisectFunction"), "double_backward")
    assert found.outcome is Outcome.FAILED


def test_an_unsupported_second_derivative_does_not_read_as_checked(packages: tuple[int, Report]) -> None:
    found = outcome(result(packages[1], "real_cases:cubic"), "double_backward")
    assert found.outcome is Outcome.UNSUPPORTED
    assert found.reason == "once_differentiable"


def test_a_declared_regularisation_is_an_expected_failure(packages: tuple[int, Report]) -> None:
    found = result(packages[1], "roma.mappings:_ProcrustesRegularization")
    assert outcome(found, "backward").outcome is Outcome.EXPECTED_FAILURE


def test_targets_without_inputs_are_unchecked(packages: tuple[int, Report]) -> None:
    checked = {each.case.target for each in packages[1].results}
    unchecked = {each.target for each in packages[1].unchecked}
    assert "roma.mappings:_HornEigenvectorManualDerivatives" in unchecked
    assert not checked & unchecked


def test_wrong_targets_give_exit_code_1(packages: tuple[int, Report]) -> None:
    assert packages[0] == 1


OPS = """
import gradbot
from torch.testing._internal import custom_op_db

NAMES = ["NumpyCubeCustomOp", "NumpyMulCustomOp", "NumpySortCustomOp", "NumpyTakeCustomOp"]


def samples(entry):
    def generator():
        for sample in entry.sample_inputs("cpu", __import__("torch").float64, requires_grad=True):
            yield gradbot.Sample(sample.input, *sample.args, **sample.kwargs)
    generator.__name__ = generator.__qualname__ = entry.name
    return generator


for entry in custom_op_db.custom_op_db:
    if entry.name in NAMES:
        gradbot.cases(entry.op)(samples(entry))
"""


def test_ops_registered_with_torch_library_are_checked(tmp_path: Path) -> None:
    (tmp_path / "op_cases.py").write_text(OPS)
    (tmp_path / "gradbot.toml").write_text('cases = ["op_cases.py"]\n')
    code, report = check(tmp_path, "torch.testing._internal.custom_op_db")
    assert {each.case.target for each in report.results} >= {"_torch_testing::numpy_cube", "_torch_testing::numpy_mul"}
    for each in report.results:
        assert outcome(each, "backward").outcome is Outcome.PASSED, each
        assert outcome(each, "registration").outcome is Outcome.PASSED, each
    assert code == 0
