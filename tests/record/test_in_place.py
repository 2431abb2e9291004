"""What a call in place reaches: every tensor of its arguments, of modules, methods and closures, upcast where it is."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradbot import codec
from gradbot.engine.reach import tensors
from gradbot.model import CaseResult, Outcome
from gradbot.record.in_place import checker
from gradbot.record.reach import upcast, with_leaves
from gradbot.record.spool import Scope, Spool
from gradbot.record.watch import watching


class Holder:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def scaled(self, x: Tensor) -> Tensor:
        return self.tensor * x


class Module(torch.nn.Module):
    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.plain = tensor


def _closure(tensor: Tensor) -> Any:
    return lambda x: x * tensor


@pytest.mark.parametrize(
    "around",
    [
        lambda t: t,
        lambda t: {"a": [t]},
        Holder,
        lambda t: Holder(t).scaled,
        lambda t: functools.partial(torch.mul, t),
        _closure,
        Module,
    ],
    ids=["itself", "containers", "object", "method", "partial", "closure", "module"],
)
def test_tensors_are_found_wherever_arguments_hold_them(around: Any) -> None:
    tensor = torch.ones(3)
    assert any(each is tensor for each in tensors(((around(tensor),), {})))
    upcast((around(tensor),), {})
    assert tensor.dtype == torch.float64


def test_an_alias_between_an_argument_and_a_module_stays_one_tensor() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    args = (Holder(weight).scaled, weight)
    leaves = upcast(args, {})
    replayed = with_leaves(args, leaves)
    assert replayed[1] is weight
    assert replayed[0].__self__.tensor is weight
    assert (weight.dtype, weight.requires_grad) == (torch.float64, True)


def test_an_argument_with_a_graph_becomes_a_leaf() -> None:
    x = torch.ones(3, requires_grad=True) * 2
    (leaf,) = with_leaves((x,), upcast((x,), {}))
    assert (leaf.is_leaf, leaf.requires_grad, leaf.dtype) == (True, True, torch.float64)
    assert torch.equal(leaf.detach(), torch.full((3,), 2.0, dtype=torch.float64))


class Inverted(torch.autograd.Function):
    """The x where f(x) = y, for an f that holds the tensors that are passed beside it."""

    retain = False

    @staticmethod
    def forward(ctx: Any, f: Any, y: Tensor, *held: Tensor) -> Tensor:
        x = torch.zeros_like(y)
        for _ in range(40):
            x = x - (f(x) - y) / 3
        ctx.f, ctx.retain = f, ctx._forward_cls.retain
        ctx.save_for_backward(x, *held)
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, *held = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.f(x)
        (slope,) = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)
        return None, grad / slope, *torch.autograd.grad(y, held, -grad / slope, retain_graph=ctx.retain)


class Cubic:
    def __init__(self, factor: Tensor) -> None:
        self.factor = factor

    def rise(self, x: Tensor) -> Tensor:
        return self.factor * x + 0.1 * x**3


def held_by_a_method(factor: Tensor) -> Any:
    return Cubic(factor).rise


def held_by_a_closure(factor: Tensor) -> Any:
    return lambda x: factor * x + 0.1 * x**3


def held_by_a_partial(factor: Tensor) -> Any:
    return functools.partial(lambda f, x: f * x + 0.1 * x**3, factor)


@pytest.mark.parametrize("hold", [held_by_a_method, held_by_a_closure, held_by_a_partial])
@pytest.mark.parametrize("of_a_view", [False, True])
def test_what_a_callable_holds_of_a_graph_is_the_leaf_that_is_passed(
    tmp_path: Path, hold: Any, *, of_a_view: bool
) -> None:
    weights = torch.tensor([1.5, 2.0, 2.5, 1.2], requires_grad=True) * 1.0
    factor = weights[1:] if of_a_view else weights
    y = torch.linspace(-1, 1, len(factor)).requires_grad_()
    checker(tmp_path)("inverted", Inverted, (hold(factor), y, factor), {})
    (path,) = tmp_path.glob("*.result.json")
    result = codec.loads(path.read_text(), CaseResult)
    assert result.outcome is Outcome.PASSED
    assert "backward" in {each.check for each in result.checks if each.outcome is Outcome.PASSED}


def checked(folder: Path, cls: Any, *args: Any, **limits: float) -> CaseResult:
    checker(folder, **limits)("target", cls, args, {})  # type: ignore[arg-type]
    (path,) = folder.glob("*.result.json")
    return codec.loads(path.read_text(), CaseResult)


def outcomes(result: CaseResult) -> dict[str, Outcome]:
    return {each.check: each.outcome for each in result.checks}


class Retaining(Inverted):
    retain = True


class WrongByY(Retaining):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        f, y, *held = Inverted.backward(ctx, grad)
        return f, 2 * y, *held


def computed_first(*, leaf: bool = False) -> tuple[Tensor, Tensor]:
    """The y of an equation, and a parameter whose exponential the equation holds."""
    logarithm = torch.tensor([0.4, 0.7, 0.9], dtype=torch.float64, requires_grad=True)
    return torch.linspace(-1, 1, 3, dtype=torch.float64).requires_grad_(), logarithm if leaf else logarithm * 1.0


@pytest.mark.parametrize("hold", [held_by_a_method, held_by_a_closure, held_by_a_partial])
@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize(("cls", "outcome"), [(Retaining, Outcome.PASSED), (WrongByY, Outcome.FAILED)])
def test_an_argument_stays_as_it_is_where_a_callable_holds_what_was_computed_from_it(
    tmp_path: Path, hold: Any, cls: Any, outcome: Outcome, *, leaf: bool
) -> None:
    y, logarithm = computed_first(leaf=leaf)
    result = checked(tmp_path, cls, hold(logarithm.exp()), y, logarithm)
    assert result.outcome is outcome
    assert [note.code for note in result.notes][:1] == ["held_back"]
    assert [each.name for each in result.inputs] == ["y"]


def test_arguments_that_share_memory_with_one_that_stays_are_moved_in_a_copy(tmp_path: Path) -> None:
    packed = torch.tensor([[0.4, 0.7, 0.9], [0.1, 0.2, 0.3]], dtype=torch.float64, requires_grad=True) * 1.0
    logarithm, shift = packed.unbind(0)
    factor = logarithm.exp()
    y, _ = computed_first()
    result = checked(tmp_path, Retaining, lambda x: factor * x + shift, y, logarithm, shift)
    assert result.outcome is Outcome.PASSED
    assert [each.name for each in result.inputs] == ["y", "input 3"]


def test_a_graph_that_the_backward_frees_can_be_walked_once_and_decides_nothing(tmp_path: Path) -> None:
    y, logarithm = computed_first()
    result = checked(tmp_path, Inverted, held_by_a_method(logarithm.exp()), y, logarithm)
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "only_on_copies")


REGISTRY: dict[str, Tensor] = {}


class OutOfReach(torch.autograd.Function):
    """Differentiates by an argument through what a registry holds, which no copy of the argument is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * REGISTRY["squared"].detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        with torch.enable_grad():
            y = x.detach() * REGISTRY["squared"]
        (by_weight,) = torch.autograd.grad(y, weight, grad, retain_graph=True)
        return grad * REGISTRY["squared"].detach(), by_weight


class Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()


class Raises(Copied):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise ValueError("no such gradient")


def test_a_backward_that_raises_on_copies_alone_decides_nothing(tmp_path: Path) -> None:
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True) * 1.0
    REGISTRY["squared"] = weight * weight
    try:
        result = checked(tmp_path, OutOfReach, torch.ones(3, dtype=torch.float64, requires_grad=True), weight)
    finally:
        REGISTRY.clear()
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "only_on_copies")
    assert "used in the graph" in str(result.details["message"])


def test_a_backward_that_raises_on_the_arguments_themselves_is_broken(tmp_path: Path) -> None:
    result = checked(tmp_path, Raises, torch.ones(3, requires_grad=True))
    assert result.outcome is Outcome.ERRORED
    assert {finding.kind for each in result.checks for finding in each.findings} == {"user_error_in_backward"}


class SpoilsEarlierGraphs(torch.autograd.Function):
    """Right, but every call takes the graphs of the calls before for changed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.detach().mul_(1)
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * grad


def test_what_raises_in_a_later_check_takes_nothing_from_those_that_were_made(tmp_path: Path) -> None:
    result = checked(tmp_path, SpoilsEarlierGraphs, torch.ones(3, dtype=torch.float64, requires_grad=True))
    assert result.outcome is Outcome.ERRORED
    assert outcomes(result)["backward"] is Outcome.PASSED
    raised = [each.check for each in result.checks if each.outcome is Outcome.ERRORED]
    assert "backward" not in raised
    assert raised


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        raise ValueError("negative")


def test_a_call_that_the_forward_refuses_decides_nothing(tmp_path: Path) -> None:
    result = checked(tmp_path, Refuses, torch.ones(2, dtype=torch.float64, requires_grad=True))
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "user_error")
    assert "negative" in str(result.details["message"])


class Slow(Copied):
    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        time.sleep(60)
        return grad_output


class OnAnotherThread(torch.autograd.Function):
    """Calls another Function of the package on a thread of its own, as parallel modules do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        found: list[Tensor] = []
        thread = threading.Thread(target=lambda: found.append(Mixed.apply(x.detach())))
        thread.start()
        thread.join()
        return found[0]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return HIDDEN["scale"].T @ grad_output


def test_what_is_called_on_other_threads_of_the_copy_is_not_recorded_nor_waits_for_the_recorder(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    scope = Scope(packages=(OnAnotherThread.__module__,))
    in_place = checker(tmp_path / "results", seconds=60)
    spool = Spool(folder=tmp_path / "spool", scope=scope, test_id=lambda: "", in_place=in_place)
    with watching(spool):
        OnAnotherThread.apply(torch.ones(3, requires_grad=True))
    results = [codec.loads(path.read_text(), CaseResult) for path in (tmp_path / "results").glob("*.result.json")]
    assert {result.case.target.rpartition(":")[2] for result in results} == {"OnAnotherThread", "Mixed"}
    assert {result.reason for result in results} == {""}


def test_checks_in_place_end_when_their_time_is_up(tmp_path: Path) -> None:
    check = checker(tmp_path, seconds=0.3, seconds_per_target=0.5)
    for _ in range(5):
        check("slow", Slow, (torch.ones(2, requires_grad=True),), {})
    results = [codec.loads(path.read_text(), CaseResult) for path in tmp_path.glob("*.result.json")]
    assert {(result.outcome, result.reason) for result in results} == {(Outcome.INCONCLUSIVE, "out_of_time")}
    assert len(results) <= 2  # each takes 0.3 s at least; a busy machine may need all of the 0.5 s for the first


class Dies(torch.autograd.Function):
    """Right, unless its backward is differentiated itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        if grad.requires_grad:
            os.kill(os.getpid(), signal.SIGKILL)
        return grad * 2 * ctx.saved_tensors[0]


def test_checks_that_were_made_before_a_crash_are_kept(tmp_path: Path) -> None:
    result = checked(tmp_path, Dies, torch.ones(3, dtype=torch.float64, requires_grad=True))
    assert result.outcome is Outcome.CRASHED
    assert outcomes(result)["backward"] is Outcome.PASSED
    assert "double_backward" not in outcomes(result)


def test_an_interrupt_of_the_suite_ends_the_check_that_is_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked: list[int] = []
    fork = os.fork

    def noted() -> int:
        pid = fork()
        forked.extend([pid] if pid else [])
        return pid

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fork", noted)
    check = checker(tmp_path, seconds=60)
    before = signal.signal(signal.SIGALRM, interrupted)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            check("slow", Slow, (torch.ones(2, requires_grad=True),), {})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    (child,) = forked
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


HIDDEN = {"scale": torch.full((3, 3), 0.5)}


class Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return HIDDEN["scale"] @ x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return HIDDEN["scale"].T @ grad_output


def test_where_float64_meets_what_is_out_of_reach_the_call_is_checked_as_it_was(tmp_path: Path) -> None:
    checker(tmp_path)("mixed", Mixed, (torch.ones(3, requires_grad=True),), {})
    (path,) = tmp_path.glob("*.result.json")
    result = codec.loads(path.read_text(), CaseResult)
    assert result.case.dtype == "float32"
    assert result.outcome is Outcome.PASSED
