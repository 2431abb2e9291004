"""Functions that draw random numbers: estimates that are right on average, and wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine.checks.wrong import result_of
from torch import Tensor

from gradbot.engine.api import check
from gradbot.model import Outcome


class Trace(torch.autograd.Function):
    """The trace of A² by random probes; the gradient estimates with other probes, drawn in the forward as well."""

    factor = 1.0
    kept = True

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        probes, others = (torch.randn(len(matrix), 3, dtype=matrix.dtype) for _ in range(2))
        ctx.save_for_backward(matrix, others)
        return (probes * (matrix @ (matrix @ probes))).sum() / 3

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        matrix, probes = ctx.saved_tensors
        cls = ctx._forward_cls
        probes = probes if cls.kept else torch.randn_like(probes)
        return cls.factor * grad_output * 2 * matrix.mT @ (probes @ probes.mT) / 3


class TooLarge(Trace):
    factor = 1.5


class DrawnAnew(Trace):
    kept = False


class Dropped(torch.autograd.Function):
    """Dropout whose backward draws a mask of its own: right on average as well, and wrong."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * torch.bernoulli(torch.full_like(x, 0.5)) * 2

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output * torch.bernoulli(torch.full_like(grad_output, 0.5)) * 2


def diagonal_heavy() -> Tensor:
    raw = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return (raw + 3 * torch.eye(3)).requires_grad_()


def test_an_estimate_that_is_right_on_average_is_not_called_wrong() -> None:
    backward = result_of(check(Trace.apply, (diagonal_heavy(),)), "backward")
    assert (backward.outcome, backward.reason) == (Outcome.INCONCLUSIVE, "right_on_average")


@pytest.mark.parametrize("cls", [TooLarge, DrawnAnew])
def test_one_that_is_wrong_on_average_or_draws_in_its_backward_is(cls: Any) -> None:
    assert result_of(check(cls.apply, (diagonal_heavy(),)), "backward").outcome is Outcome.FAILED


def test_a_mask_that_the_backward_draws_anew_is_wrong() -> None:
    x = torch.linspace(1, 2, 6, dtype=torch.float64).requires_grad_()
    assert result_of(check(Dropped.apply, (x,)), "backward").outcome is Outcome.FAILED
