"""At a kink a wrong gradient is found by moving tied elements together, and shown where the function is smooth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine.bent import DOUBLE, custom
from torch import Tensor

import gradbot
from gradbot.model import CheckResult, Mode, Outcome


def least(factor: float) -> Callable[[Tensor], Tensor]:
    """The least of all numbers, with a gradient `factor` times the one that is spread over ties."""

    def backward(g: Tensor, x: Tensor) -> Tensor:
        at = (x == x.amin()).to(x)
        return g * factor * at / at.sum()

    return custom(torch.amin, backward)


def backward_of(func: Callable[..., Any], x: Tensor, **options: Any) -> CheckResult:
    case = gradbot.check(func, (x.requires_grad_(),), **options)
    return next(each for each in case.checks if each.check == "backward")


@pytest.mark.parametrize("count", [2, 4, 40])
@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.EXACT])
def test_a_gradient_that_equals_the_central_difference_of_ties_is_wrong_all_the_same(count: int, mode: Mode) -> None:
    x = torch.ones(count, dtype=DOUBLE)
    assert backward_of(least(1.0), x.clone(), mode=mode).outcome is not Outcome.FAILED
    assert backward_of(least(count / 2), x.clone(), mode=mode).outcome is (
        Outcome.PASSED if count == 2 else Outcome.FAILED
    )


def test_a_wrong_gradient_at_ties_is_shown_beside_them_with_its_factor() -> None:
    (finding,) = backward_of(least(2.0), torch.ones(4, dtype=DOUBLE)).findings
    assert finding.details["beside"] == "1e-03"
    assert finding.diagnosis is not None
    assert finding.diagnosis.pattern == "constant_factor"
    assert finding.diagnosis.parameters["factor"] == pytest.approx(2.0)
    assert finding.evidence is not None
    (entry,) = finding.evidence.entries
    assert (entry.analytical, entry.numerical) == pytest.approx((2.0, 1.0))


def test_a_wrong_gradient_of_a_smooth_function_is_shown_at_the_inputs() -> None:
    wrong = custom(torch.sin, lambda g, x: 2 * g * x.cos())
    (finding,) = backward_of(wrong, torch.ones(4, dtype=DOUBLE)).findings
    assert "beside" not in finding.details


def test_three_times_the_slope_at_integers_only_is_wrong_where_the_function_jumps() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        return g * torch.where(x == x.round(), 3.0, 1.0)

    x = torch.tensor([1.0, 2.0, 0.3], dtype=DOUBLE)
    right = backward_of(custom(lambda x: x.floor() + x, lambda g, x: g.clone()), x.clone())
    wrong = backward_of(custom(lambda x: x.floor() + x, backward), x.clone())
    assert (right.outcome, right.reason) == (Outcome.INCONCLUSIVE, "jump")
    assert [each.kind for each in wrong.findings] == ["wrong_at_point"]
