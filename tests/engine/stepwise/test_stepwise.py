"""What is computed to some tolerance only is not called wrong for the steps it moves in, nor excused for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from engine.bent import DOUBLE, custom
from torch import Tensor

import gradbot
from gradbot.engine.compare import compare_jacobians
from gradbot.engine.problem import Problem
from gradbot.engine.stepwise import explains
from gradbot.model import CheckResult, CheckSettings, Outcome


def in_steps(size: float, factor: float = 1.0) -> Callable[[Tensor], Tensor]:
    """The sine to within `size`, as an iteration that ends there computes it."""
    return custom(lambda x: (torch.floor(x.sin() / size) + 0.5) * size, lambda g, x: factor * g * x.cos())


def noisy(size: float, factor: float = 1.0) -> Callable[[Tensor], Tensor]:
    """The sine and something of the input that no difference can follow."""
    return custom(lambda x: x.sin() + size * torch.sin(1e15 * x), lambda g, x: factor * g * x.cos())


def backward_of(func: Callable[[Tensor], Tensor], *shape: int, seed: int = 0) -> CheckResult:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(shape, generator=generator, dtype=DOUBLE).requires_grad_()
    return gradbot.check(func, (x,), checks=["backward"]).checks[0]


@pytest.mark.parametrize("size", [1e-7, 1e-6, 1e-5])
@pytest.mark.parametrize("shape", [(4,), (3, 5)])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [in_steps, noisy])
def test_a_right_gradient_over_the_steps_is_never_failed(
    kind: Callable[..., Callable[[Tensor], Tensor]], size: float, shape: tuple[int, ...], seed: int
) -> None:
    assert backward_of(kind(size), *shape, seed=seed).outcome is not Outcome.FAILED


@pytest.mark.parametrize("size", [1e-8, 1e-7])
@pytest.mark.parametrize("factor", [1.5, -1.0, 0.0])
def test_a_wrong_one_is_never_passed(size: float, factor: float) -> None:
    assert backward_of(in_steps(size, factor), 3, 5).outcome is not Outcome.PASSED


def test_a_wrong_one_over_the_steps_fails() -> None:
    assert backward_of(in_steps(1e-7, 1.5), 3, 5).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    "func",
    [torch.sin, torch.relu, lambda x: x.sort(-1).values, lambda x: x.amax(-1), lambda x: (40 * x).sin().abs()],
    ids=["smooth", "kinked", "sorted", "largest", "many kinks"],
)
def test_nothing_that_is_continuous_is_excused(func: Callable[[Tensor], Tensor]) -> None:
    generator = torch.Generator().manual_seed(1)
    x = (torch.rand(4, 5, generator=generator, dtype=DOUBLE) - 0.5).requires_grad_()

    def one_entry(g: Tensor) -> Tensor:
        wrong = g.clone()
        wrong.view(-1)[3] = wrong.view(-1)[3] * 1.01 + 1e-3
        return wrong

    identity = custom(lambda x: x.view_as(x), lambda g, x: one_entry(g))
    problem = Problem(func=lambda x: (func(identity(x)),), inputs=(x,))
    comparison = compare_jacobians(problem, settings=CheckSettings())
    assert comparison.wrong_pairs == ((0, 0),)
    assert not explains(problem, comparison)
