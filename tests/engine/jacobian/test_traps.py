"""What makes right derivatives look wrong, and wrong ones look right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from engine.jacobian.problems import problem, real, scaled
from torch import Tensor

from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.jacobian.point import OutputsChangedError
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings


def compared(subject: Problem) -> Comparison:
    return compare_jacobians(subject, settings=CheckSettings(), seed=0)


def at(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("shape", [(3,), (16, 8)])
@pytest.mark.parametrize(
    "func",
    [
        pytest.param(lambda x: torch.sin(x) + 1e8, id="far from zero: a wider step"),
        pytest.param(lambda x: torch.log(1e-7 * x), id="beside a pole: a narrower step"),
        pytest.param(lambda x: x.sum(), id="scalar output"),
        pytest.param(lambda x: 1e12 * x, id="large slopes"),
        pytest.param(lambda x: 0 * x, id="no dependence"),
        pytest.param(lambda x: x.reshape(-1).sort()[0], id="sorted"),
        pytest.param(lambda x: x.clone()[:0], id="no output elements"),
        pytest.param(lambda x: torch.where(x > 9, x, -torch.inf).exp(), id="infinite in between"),
    ],
)
def test_right_derivatives_agree(func: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    assert compared(problem(func, real(*shape))).verdict is Verdict.AGREE


def test_a_step_shrinks_below_a_small_element() -> None:
    assert compared(problem(torch.log, at([1e-7, 1e-7]))).verdict is Verdict.AGREE


def test_a_step_shrinks_between_close_elements() -> None:
    assert compared(problem(lambda x: x.sort()[0], at([1.0, 1 + 5e-7, 2.0]))).verdict is Verdict.AGREE


@pytest.mark.parametrize(
    ("func", "values"),
    [(torch.relu, [0.0, 0.0]), (torch.round, [0.5, 1.5]), (lambda x: x.clamp(1, 1), [1.0, 2.0])],
    ids=["kink", "jump", "both bounds"],
)
def test_singular_points_differ_or_agree_but_are_never_noise(
    func: Callable[[Tensor], Tensor], values: list[float]
) -> None:
    assert compared(problem(func, at(values))).reason != "precision"


@pytest.mark.parametrize("func", [torch.acosh, torch.sqrt], ids=["outside", "edge"])
def test_the_edge_of_a_domain_is_said(func: Callable[[Tensor], Tensor]) -> None:
    comparison = compared(problem(func, at([0.0, 0.0])))
    assert comparison.verdict is Verdict.UNSURE
    assert comparison.reason == "domain"


def test_a_gradient_that_is_not_a_number_differs() -> None:
    assert compared(problem(lambda x: scaled(x, float("nan")), real(3))).verdict is Verdict.DIFFER
    assert compared(problem(lambda x: scaled(x, float("nan")), real(16, 8))).verdict is Verdict.DIFFER


def test_inputs_without_elements() -> None:
    empty = torch.zeros(0, 3, dtype=torch.float64, requires_grad=True)
    assert compared(problem(torch.sin, empty)).verdict is Verdict.AGREE
    assert compared(problem(lambda x, y: x.sum() + y, empty, real(2))).verdict is Verdict.AGREE


@pytest.mark.parametrize("shape", [(3,), (16, 8)])
def test_inputs_that_are_read_by_closure_are_moved_in_place(shape: tuple[int, ...]) -> None:
    x = real(*shape)
    before = x.detach().clone()
    assert compared(problem(lambda _: x.sin(), x)).verdict is Verdict.AGREE
    assert torch.equal(x, before)
    assert compared(problem(lambda _: scaled(x.sin(), 1.1), x)).verdict is Verdict.DIFFER
    assert torch.equal(x, before)


@pytest.mark.parametrize("shape", [(3,), (16, 8)])
def test_values_that_change_without_grad_mode(shape: tuple[int, ...]) -> None:
    def func(x: Tensor) -> Tensor:
        return x.sin() if torch.is_grad_enabled() else 3 * x

    assert compared(problem(func, real(*shape))).verdict is Verdict.AGREE


def test_outputs_that_depend_on_the_step() -> None:
    x = at([1.0, 2.0, 3.0])
    with pytest.raises(OutputsChangedError, match="a step away"):
        compared(problem(lambda t: t[t >= 1.0], x))


def test_a_batching_rule_that_is_wrong_is_not_believed() -> None:
    class WrongRule(torch.autograd.Function):
        @staticmethod
        def forward(x):  # type: ignore[no-untyped-def]
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
            pass

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g * 2

        @staticmethod
        def vmap(info, in_dims, x):  # type: ignore[no-untyped-def]
            return x * 3, in_dims[0]

    assert compared(problem(WrongRule.apply, real(10))).verdict is Verdict.AGREE


def test_strided_inputs_and_parts_of_a_larger_memory() -> None:
    transposed = real(6, 4).detach().T.requires_grad_()
    assert compared(problem(torch.sin, transposed)).verdict is Verdict.AGREE
    part = torch.arange(20.0, dtype=torch.float64)[5:15].detach().requires_grad_()
    assert compared(problem(lambda x: x.as_strided((3,), (2,), 6).sin(), part)).verdict is Verdict.AGREE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_coarser_dtypes_are_compared_with_their_own_steps(dtype: torch.dtype) -> None:
    x, w = (real(2, 2, seed=seed).detach().to(dtype).requires_grad_() for seed in (0, 1))
    assert compared(problem(torch.mm, x, w)).verdict is Verdict.AGREE
    assert compared(problem(lambda a, b: torch.mm(scaled(a, 2.0), b), x, w)).verdict is Verdict.DIFFER
