"""A recorded call that the function refuses by now is no broken gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradbot import codec, messages
from gradbot.engine.api import check
from gradbot.inputs.source import StaleRecordingError
from gradbot.model import Case, CaseResult, InputSource, Outcome
from gradbot.worker.main import _Worker
from gradbot.worker.recordings import as_stale, stale


class Renamed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        raise ValueError("broken")


class Unheard:
    """A turn that nobody listens to."""

    def stage(self, stage: str, what: str = "") -> None:
        pass

    def check(self, result: Mapping[str, Any]) -> None:
        pass


X = torch.ones(2, dtype=torch.float64, requires_grad=True)


def recorded(result: CaseResult) -> CaseResult:
    return replace(result, case=replace(result.case, source=InputSource.RECORDED))


def test_a_call_that_the_forward_refuses_is_stale_and_decides_nothing() -> None:
    result = recorded(check(Renamed.apply, (X, 2.0, True)))
    assert result.outcome is Outcome.ERRORED
    assert stale(result)
    told = as_stale(result, "TypeError: too many arguments")
    assert (told.outcome, told.checks) == (Outcome.INCONCLUSIVE, ())
    text = messages.reason_text(told.reason, told.details)
    assert text == "the recorded call no longer fits: TypeError: too many arguments; record again"


def test_a_declared_call_that_the_forward_refuses_is_an_error() -> None:
    assert not stale(check(Renamed.apply, (X, 2.0, True)))


def test_a_backward_that_raises_is_an_error() -> None:
    result = recorded(check(Renamed.apply, (X, 2.0)))
    assert result.outcome is Outcome.ERRORED
    assert not stale(result)


def test_a_recording_that_cannot_be_read_back_decides_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from gradbot import inputs

    def gone(case: Case, root: Path) -> None:
        raise StaleRecordingError("a.json has no sample 1 any more")

    monkeypatch.setattr(inputs, "load_case", gone)
    case = Case(id="m:F[a]", target="m:F", name="a", source=InputSource.RECORDED, reference="recorded:a.json#1")
    command: Mapping[str, Any] = {"do": "case", "case": codec.encode(case), "root": str(tmp_path), "modules": []}
    body = _Worker(0).handle(command, Unheard())
    result = codec.decode(body["result"], CaseResult)
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "stale_recording")
