"""What a call in place reaches: every tensor of its arguments, of modules, methods and closures, upcast where it is."""

from __future__ import annotations

import functools
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradbot import codec
from gradbot.model import Case, CaseResult, CheckResult, InputSource, Outcome
from gradbot.record.in_place import _settled, _tensors, _upcast, _with_leaves, checker


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
    assert any(each is tensor for each in _tensors(((around(tensor),), {}), set()))
    _upcast((around(tensor),), {})
    assert tensor.dtype == torch.float64


def test_an_alias_between_an_argument_and_a_module_stays_one_tensor() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    args = (Holder(weight).scaled, weight)
    leaves = _upcast(args, {})
    replayed = _with_leaves(args, leaves)
    assert replayed[1] is weight
    assert replayed[0].__self__.tensor is weight
    assert (weight.dtype, weight.requires_grad) == (torch.float64, True)


def test_an_argument_with_a_graph_becomes_a_leaf() -> None:
    x = torch.ones(3, requires_grad=True) * 2
    (leaf,) = _with_leaves((x,), _upcast((x,), {}))
    assert (leaf.is_leaf, leaf.requires_grad, leaf.dtype) == (True, True, torch.float64)
    assert torch.equal(leaf.detach(), torch.full((3,), 2.0, dtype=torch.float64))


class Inverted(torch.autograd.Function):
    """The x where f(x) = y, for an f that holds the tensors that are passed beside it."""

    @staticmethod
    def forward(ctx: Any, f: Any, y: Tensor, *held: Tensor) -> Tensor:
        x = torch.zeros_like(y)
        for _ in range(40):
            x = x - (f(x) - y) / 3
        ctx.f = f
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
        return None, grad / slope, *torch.autograd.grad(y, held, -grad / slope)


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


def test_a_call_that_the_forward_refuses_decides_nothing() -> None:
    from gradbot.engine.api import check

    def refuses(x: Tensor) -> Tensor:
        raise ValueError("negative")

    result = _settled(check(refuses, (torch.ones(2, dtype=torch.float64, requires_grad=True),)))
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "user_error")
    assert "negative" in str(result.details["message"])


def test_other_results_are_left_alone() -> None:
    case = Case(id="m:F[a]", target="m:F", name="a", source=InputSource.RECORDED, reference="")
    failed = CheckResult(check="backward", outcome=Outcome.FAILED)
    result = CaseResult(case=case, outcome=Outcome.FAILED, checks=(failed,))
    assert _settled(result) is result


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        time.sleep(60)
        return grad_output


def test_checks_in_place_end_when_their_time_is_up(tmp_path: Path) -> None:
    check = checker(tmp_path, seconds=0.3, seconds_per_target=0.5)
    for _ in range(5):
        check("slow", Slow, (torch.ones(2, requires_grad=True),), {})
    results = [codec.loads(path.read_text(), CaseResult) for path in tmp_path.glob("*.result.json")]
    assert {result.outcome for result in results} == {Outcome.TIMED_OUT}
    assert len(results) <= 2  # each takes 0.3 s at least; a busy machine may need all of the 0.5 s for the first


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
