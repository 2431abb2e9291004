"""Recorded files become cases, and cases the recorded calls."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from gradbot import inputs
from gradbot.config import load
from gradbot.engine.api import check_case
from gradbot.inputs.source import Collected, StaleRecordingError
from gradbot.model import InputSource, Outcome, Target, TargetKind
from gradbot.record.spool import Scope, Spool
from gradbot.record.store import Limits, read_spool, update


class Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mask: torch.Tensor, shift: float) -> torch.Tensor:
        ctx.save_for_backward(mask)
        return x * mask + shift

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return grad_output * mask, None, None


TARGET = f"{Shifted.__module__}:Shifted"
MASK = torch.zeros(400).bernoulli_(0.5, generator=torch.Generator().manual_seed(1))


def recorded(folder: Path, *calls: tuple[Any, ...]) -> None:
    spool = Spool(folder=folder / "spool", scope=Scope(packages=(Shifted.__module__,)), test_id=lambda: "tests/t.py::t")
    for call in calls:
        spool.function_called(Shifted, call, {})
    entries = read_spool(folder / "spool")
    folders = [Path(entry["folder"]) for entry in entries]
    update(folder / "gradbot_cases", entries, limits=Limits(), prune=False, tensor_folders=folders)


def collected(folder: Path, **options: Any) -> Collected:
    request = inputs.Request(
        root=folder,
        config=load(None, folder, options, {}),
        targets={TARGET: Target(id=TARGET, kind=TargetKind.FUNCTION)},
    )
    return inputs.collect(request)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    recorded(
        tmp_path,
        (torch.randn(3, requires_grad=True), torch.tensor([1.0, 0.0, 1.0]), 0.5),
        (torch.randn(400, requires_grad=True), MASK, 0.5),
        (torch.randn(4), torch.ones(4), 2.0),
    )
    return tmp_path


def test_every_sample_is_a_case_named_by_its_shapes(project: Path) -> None:
    cases = collected(project).cases
    assert [case.name for case in cases] == ["recorded-3-3", "recorded-4-4", "recorded-400-400"]
    assert all(case.source is InputSource.RECORDED for case in cases)
    assert cases[0].id == f"{TARGET}[recorded-3-3]cpu:float32"
    assert cases[0].test_id == "tests/t.py::t"


def test_a_case_gives_the_recorded_call_with_exact_masks(project: Path) -> None:
    (case,) = [case for case in collected(project).cases if case.name == "recorded-400-400"]
    loaded = inputs.load_case(case, project)
    x, mask, shift = loaded.args
    assert loaded.function_class is Shifted
    assert x.requires_grad
    assert not mask.requires_grad
    assert torch.equal(mask, MASK)
    assert shift == 0.5


def test_other_dtypes_are_converted(project: Path) -> None:
    case = collected(project, dtypes=("float64",)).cases[0]
    assert inputs.load_case(case, project).args[0].dtype == torch.float64


def test_calls_without_grad_are_skipped_where_others_show_what_requires_it(project: Path) -> None:
    (case,) = [case for case in collected(project).cases if case.name == "recorded-4-4"]
    assert "other recorded calls say by what one may" in case.settings.skip


def test_a_recorded_case_is_checked(project: Path) -> None:
    case = collected(project, dtypes=("float64",)).cases[0]
    loaded = inputs.load_case(case, project)
    result = check_case(case, loaded.func, loaded.args, dict(loaded.kwargs), function_class=loaded.function_class)
    assert result.outcome is Outcome.PASSED


def test_targets_that_are_not_discovered_give_no_cases(project: Path) -> None:
    request = inputs.Request(root=project, config=load(None, project, {}, {}))
    assert inputs.collect(request).cases == ()


def test_a_file_that_cannot_be_read_is_a_problem_and_costs_only_itself(project: Path) -> None:
    (project / "gradbot_cases" / "broken.json").write_text("{")
    found = collected(project)
    assert len(found.cases) == 3
    assert [problem.module for problem in found.problems] == ["gradbot_cases/broken.json"]


def test_a_sample_that_is_gone_says_so(project: Path) -> None:
    case = collected(project).cases[0]
    for path in (project / "gradbot_cases").glob("*.json"):
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "samples": []}))
    with pytest.raises(StaleRecordingError, match="has no sample"):
        inputs.load_case(case, project)


def test_objects_that_are_gone_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "recorded_helpers_here.py"
    module.write_text(textwrap.dedent("def scale():\n    return 2.0\n"))
    monkeypatch.syspath_prepend(str(tmp_path))
    import recorded_helpers_here

    recorded(tmp_path, (torch.randn(3, requires_grad=True), torch.ones(3), recorded_helpers_here.scale))
    (case,) = collected(tmp_path).cases
    monkeypatch.delattr(recorded_helpers_here, "scale")
    with pytest.raises(StaleRecordingError, match="scale"):
        inputs.load_case(case, tmp_path)
