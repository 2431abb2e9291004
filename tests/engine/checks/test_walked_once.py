"""Backwards that run once a graph, or under .backward() alone, and forwards that free what they are given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine.checks.wrong import kinds, result_of
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gradbot.engine.api import check, check_case
from gradbot.model import Case, CaseResult, CheckResult, InputSource, Outcome


def codes(result: CaseResult) -> set[str]:
    return {note.code for note in result.notes}


class OnlyBackward(torch.autograd.Function):
    """x ** 3, which refuses torch.autograd.grad, as checkpoints do."""

    factor = 1.0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        if not torch.autograd._is_checkpoint_valid():
            raise RuntimeError("not compatible with .grad()")
        return ctx._forward_cls.factor * 3 * ctx.saved_tensors[0] ** 2 * grad_output


class Once(OnlyBackward):
    """Forgets what it saved as soon as it was used."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.left = [x.detach().clone()]
        return x**3

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return ctx._forward_cls.factor * 3 * ctx.left.pop() ** 2 * grad_output


class Frees(OnlyBackward):
    """Frees the memory of its input, and rebuilds it from the output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        output: Tensor = x.detach() ** 3
        x.untyped_storage().resize_(0)
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x = ctx.saved_tensors[0] ** (1 / 3)
        return ctx._forward_cls.factor * 3 * x**2 * grad_output


def doubled(cls: type) -> Any:
    return type(f"Doubled{cls.__name__}", (cls,), {"factor": 2.0})


def positive() -> Tensor:
    return torch.linspace(1, 2, 5, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize(
    ("cls", "note"), [(OnlyBackward, "walked_once"), (Once, "walked_once"), (Frees, "inputs_freed")]
)
def test_right_ones_pass_and_the_input_is_as_it_was(cls: Any, note: str) -> None:
    x = positive()
    result = check(cls.apply, (x,))
    assert result.outcome is Outcome.PASSED
    assert result_of(result, "backward").outcome is Outcome.PASSED
    assert note in codes(result)
    assert torch.equal(x.detach(), positive().detach())
    assert x.grad is None


@pytest.mark.parametrize("cls", [OnlyBackward, Once, Frees])
def test_wrong_ones_fail(cls: Any) -> None:
    assert result_of(check(doubled(cls).apply, (positive(),)), "backward").outcome is Outcome.FAILED


class Held(OnlyBackward):
    """f(x), where f holds the weight that is passed beside it; the backward calls f again."""

    @staticmethod
    def forward(ctx: Any, f: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.f = f
        ctx.save_for_backward(x, weight)
        with torch.no_grad():
            return f(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        if not torch.autograd._is_checkpoint_valid():
            raise RuntimeError("not compatible with .grad()")
        x, weight = ctx.saved_tensors
        with torch.enable_grad():
            copy = x.detach().requires_grad_()
            output = ctx.f(copy)
        factor = ctx._forward_cls.factor
        return None, *(factor * each for each in torch.autograd.grad(output, (copy, weight), grad_output))


@pytest.mark.parametrize(("cls", "outcome"), [(Held, Outcome.PASSED), (doubled(Held), Outcome.FAILED)])
def test_weights_that_a_callable_holds_as_well_are_checked_too(cls: Any, outcome: Outcome) -> None:
    weight = torch.tensor([0.5, 1.5, 2.5], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    result = check(cls.apply, (lambda x: weight * x**2, x, weight))
    assert result.outcome is outcome
    assert [each.name for each in result.inputs] == ["x", "weight"]
    assert weight.grad is None


def test_reentrant_checkpoints_are_checked() -> None:
    layer = torch.nn.Linear(3, 2).double()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    result = check(lambda x: checkpoint(layer, x, use_reentrant=True), (x,))
    assert result.outcome is Outcome.PASSED
    assert "walked_once" in codes(result)


class Raises(OnlyBackward):
    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        raise ValueError("no such gradient")


def test_a_backward_that_raises_anyhow_is_broken() -> None:
    result = check(Raises.apply, (positive(),))
    assert result.outcome is Outcome.ERRORED
    assert kinds(result_of(result, "backward")) == ["user_error_in_backward"]
    assert "walked_once" not in codes(result)


@pytest.mark.parametrize(("cls", "told"), [(OnlyBackward, set()), (doubled(Frees), {"backward"})])
def test_a_failure_that_a_second_look_may_excuse_is_not_told_before_it(cls: Any, told: set[str]) -> None:
    case = Case(id="c", target="m:F", name="c", source=InputSource.DECLARED, reference="")
    heard: list[CheckResult] = []
    check_case(case, cls.apply, (positive(),), {}, function_class=cls, on_check=heard.append)
    failures = {each.check for each in heard if each.outcome in (Outcome.FAILED, Outcome.ERRORED)}
    assert told <= failures
    assert told or not failures
    assert "side_effects" in {each.check for each in heard}
