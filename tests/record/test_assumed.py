"""Calls of which no input required grad: who is taken to require it, and that nobody is called wrong for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradbot import codec, inputs
from gradbot.config import load
from gradbot.engine.api import check_case
from gradbot.messages import note_text
from gradbot.model import CaseResult, Outcome, Target, TargetKind
from gradbot.record.assumed import require_grad
from gradbot.record.in_place import checker
from gradbot.record.spool import Scope, Spool
from gradbot.record.store import Limits, read_spool, update


class Thresholded(torch.autograd.Function):
    """Right, and its second argument is a float that it never differentiates by."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: Tensor) -> Tensor:
        ctx.save_for_backward(x, threshold)
        return (x - threshold).square()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        x, threshold = ctx.saved_tensors
        return 2 * (x - threshold) * grad_output, None


class Zeroed(Thresholded):
    """Gives zeros for what it does not differentiate by."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, threshold = ctx.saved_tensors
        return 2 * (x - threshold) * grad_output, torch.zeros_like(threshold)


class Refusing(Thresholded):
    """Raises where its second argument requires grad."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        if ctx.needs_input_grad[1]:
            raise NotImplementedError("no gradient of the threshold")
        x, threshold = ctx.saved_tensors
        return 2 * (x - threshold) * grad_output, None


class Wrong(Thresholded):
    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        x, threshold = ctx.saved_tensors
        return (x - threshold) * grad_output, None


class Nothing(Thresholded):
    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[None, None]:  # type: ignore[override]
        return None, None


class Broken(Thresholded):
    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        raise RuntimeError("broken")


RIGHT = [Thresholded, Zeroed, Refusing]


def call(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(4, dtype=dtype, generator=generator), torch.tensor(0.3, dtype=dtype)


@pytest.mark.parametrize("cls", RIGHT)
def test_an_input_is_taken_to_require_grad_where_the_backward_gives_one(cls: Any) -> None:
    args = call()
    (note,) = require_grad(cls.apply, args, {}).notes
    assert [each.requires_grad for each in args] == [True, False]
    assert note_text(note).startswith("no recorded call asked for a gradient; assumed of 1 of 2")


def test_where_the_backward_gives_nothing_nothing_is_assumed() -> None:
    args = call()
    assert "the backward gives no input one" in require_grad(Nothing.apply, args, {}).skip
    assert not any(each.requires_grad for each in args)


def test_a_backward_that_raises_whoever_requires_grad_is_said_and_nothing_assumed() -> None:
    args = call()
    assert "where one is asked for it raises RuntimeError: broken" in require_grad(Broken.apply, args, {}).skip
    assert not any(each.requires_grad for each in args)


def test_parameters_in_containers_that_autograd_does_not_see_are_not_assumed_to_require_grad() -> None:
    x, threshold = call()
    assumed = require_grad(lambda x, options: Thresholded.apply(x, options["at"]), (x, {"at": threshold}), {})
    assert assumed.notes
    assert (x.requires_grad, threshold.requires_grad) == (True, False)


def test_asking_changes_neither_the_inputs_nor_the_random_state() -> None:
    def changes(x: Tensor) -> Tensor:
        return (x.detach().zero_() + torch.rand(2)) * x if x.is_leaf else x

    x, state = torch.ones(2), torch.get_rng_state()
    require_grad(changes, (x,), {})
    assert torch.equal(x.detach(), torch.ones(2))
    assert torch.equal(torch.get_rng_state(), state)


def replayed(cls: type, folder: Path, *calls: tuple[Tensor, ...]) -> list[CaseResult]:
    """Record calls of a Function, and check what was recorded."""
    spool = Spool(folder=folder / "spool", scope=Scope(packages=(cls.__module__,)), test_id=lambda: "")
    for args in calls:
        spool.function_called(cls, args, {})
    entries = read_spool(folder / "spool")
    update(folder / "gradbot_cases", entries, limits=Limits(), prune=False, tensor_folders=[])
    target = f"{cls.__module__}:{cls.__qualname__}"
    config = load(None, folder, {}, {})
    targets = {target: Target(id=target, kind=TargetKind.FUNCTION)}
    results = []
    for case in inputs.collect(inputs.Request(root=folder, config=config, targets=targets)).cases:
        loaded = inputs.load_case(case, folder)
        if loaded.settings.skip:
            results.append(CaseResult(case=case, outcome=Outcome.SKIPPED, details={"reason": loaded.settings.skip}))
            continue
        found = check_case(case, loaded.func, loaded.args, loaded.kwargs, function_class=loaded.function_class)
        results.append(CaseResult(case=case, outcome=found.outcome, notes=(*loaded.notes, *found.notes)))
    return results


@pytest.mark.parametrize("cls", RIGHT)
def test_a_right_function_recorded_without_grad_passes_with_a_note(cls: type, tmp_path: Path) -> None:
    (result,) = replayed(cls, tmp_path, call())
    assert result.outcome is Outcome.PASSED
    assert "grad_assumed" in {note.code for note in result.notes}


def test_a_wrong_function_recorded_without_grad_fails(tmp_path: Path) -> None:
    (result,) = replayed(Wrong, tmp_path, call())
    assert result.outcome is Outcome.FAILED


def test_what_gives_no_gradient_is_skipped_with_the_reason(tmp_path: Path) -> None:
    (result,) = replayed(Nothing, tmp_path, call())
    assert result.outcome is Outcome.SKIPPED
    assert "the backward gives no input one" in str(result.details["reason"])


class Scaled(Thresholded):
    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: Tensor, factor: float) -> Tensor:  # type: ignore[override]
        ctx.factor = factor
        return factor * Thresholded.forward(ctx, x, threshold)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        return *Thresholded.backward(ctx, ctx.factor * grad_output), None


def test_of_calls_that_differ_in_tensors_alone_those_that_ask_for_a_gradient_are_kept(
    tmp_path: Path,
) -> None:
    x, threshold = call()
    asking = (x.clone().requires_grad_(), threshold, 2.0)
    results = replayed(Scaled, tmp_path, (x, threshold, 2.0), (x[:2].float(), threshold.float(), 2.0), asking)
    assert [result.outcome for result in results] == [Outcome.PASSED]


def test_calls_that_show_what_requires_grad_win(tmp_path: Path) -> None:
    x, threshold = call()
    asking = (x.clone().requires_grad_(), threshold, 2.0)
    results = replayed(Scaled, tmp_path, (x, threshold, 3.0), asking)
    assert sorted(result.outcome for result in results) == [Outcome.PASSED, Outcome.SKIPPED]
    assert not any(note.code == "grad_assumed" for result in results for note in result.notes)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize(
    ("cls", "outcome"),
    [(Thresholded, Outcome.PASSED), (Refusing, Outcome.PASSED), (Wrong, Outcome.FAILED), (Broken, Outcome.SKIPPED)],
)
def test_in_place_the_same_holds(mode: Any, cls: type, outcome: Outcome, tmp_path: Path) -> None:
    with mode():
        args = call(torch.float32)
        checker(tmp_path)("target", cls, args, {})
    (path,) = tmp_path.glob("*.result.json")
    result = codec.loads(path.read_text(), CaseResult)
    assert result.outcome is outcome
    assert result.case.name == "in-place-assumed-0"
    assert (outcome is Outcome.SKIPPED) != ("grad_assumed" in {note.code for note in result.notes})
    assert not any(each.requires_grad for each in args)


class Remembers(Thresholded):
    """Keeps what its backward needs only where its caller is in grad mode."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: Tensor, keep: bool) -> Tensor:  # type: ignore[override]
        if keep:
            ctx.save_for_backward(x, threshold)
        return 0.5 * (x - threshold).square()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        return *Thresholded.backward(ctx, grad_output), None


def asked(cls: type, keep: bool) -> tuple[Any, ...]:
    x, threshold = call()
    args = (x.requires_grad_(), threshold)
    return (*args, keep) if cls is Remembers else args


WITHOUT_GRAD_MODE = [(Remembers, Outcome.SKIPPED), (Thresholded, Outcome.PASSED), (Wrong, Outcome.FAILED)]


@pytest.mark.parametrize(("cls", "outcome"), WITHOUT_GRAD_MODE)
def test_a_call_without_grad_mode_asks_for_no_gradient(cls: type, outcome: Outcome, tmp_path: Path) -> None:
    with torch.no_grad():
        (result,) = replayed(cls, tmp_path, asked(cls, keep=False))
    assert result.outcome is outcome
    assert (outcome is Outcome.SKIPPED) != ("grad_assumed" in {note.code for note in result.notes})


@pytest.mark.parametrize(("cls", "outcome"), WITHOUT_GRAD_MODE)
def test_nor_does_one_that_is_checked_in_place(cls: type, outcome: Outcome, tmp_path: Path) -> None:
    with torch.no_grad():
        checker(tmp_path)("target", cls, asked(cls, keep=False), {})
    (path,) = tmp_path.glob("*.result.json")
    result = codec.loads(path.read_text(), CaseResult)
    assert (result.outcome, result.case.name) == (outcome, "in-place-assumed-0")


def test_a_call_in_grad_mode_is_seen_beside_the_same_without(tmp_path: Path) -> None:
    spool = Spool(folder=tmp_path, scope=Scope(packages=(Remembers.__module__,)), test_id=lambda: "")
    args = asked(Remembers, keep=True)
    with torch.no_grad():
        spool.function_called(Remembers, args, {})
    spool.function_called(Remembers, args, {})
    assert [entry["requires_grad"] for entry in read_spool(tmp_path)] == [False, True]
