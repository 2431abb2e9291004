"""Functions that draw random numbers: estimates that are right on average, one of many factors, and wrong ones."""

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


class Root(torch.autograd.Function):
    """One of the many R with R Rᵀ = A, turned at random; the gradient is that of R Rᵀ."""

    factor = 1.0

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        turn, _ = torch.linalg.qr(matrix.new_empty(matrix.shape).normal_())
        values, vectors = torch.linalg.eigh(matrix)
        root = vectors @ torch.diag(values.sqrt()) @ turn
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (root,) = ctx.saved_tensors
        # of a loss of R Rᵀ alone, whose gradient by A is G: grad_output = (G + Gᵀ) R
        both = grad_output @ torch.linalg.inv(root)
        return ctx._forward_cls.factor * (both + both.mT) / 4


class SignedRoot(Root):
    """Its columns are those of one factor, and draws change no more than their signs."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        signs = torch.bernoulli(torch.full_like(values, 0.5)) * 2 - 1
        root = vectors * values.sqrt() * signs
        ctx.save_for_backward(root)
        return root


class SignedVectors(torch.autograd.Function):
    """Eigenvectors with random signs and their own gradient."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        vectors = vectors * (torch.bernoulli(torch.full_like(values, 0.5)) * 2 - 1)
        ctx.save_for_backward(values, vectors)
        return vectors

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        values, vectors = ctx.saved_tensors
        gaps = values - values[:, None]
        gaps.fill_diagonal_(torch.inf)
        return vectors @ ((vectors.mT @ grad_output) / gaps) @ vectors.mT


class RootTooLarge(Root):
    factor = 2.0


def definite() -> Tensor:
    raw = diagonal_heavy().detach()
    return (raw @ raw.mT).requires_grad_()


def projected(cls: Any) -> Any:
    from gradbot.engine.projections import symmetric

    return check(cls.apply, (definite(),), checks=["backward", "determinism"], projection=symmetric)


def test_one_of_many_factors_is_checked_by_what_they_share() -> None:
    result = projected(Root)
    assert result.outcome is Outcome.PASSED
    assert "shared_by_draws" in {note.code for note in result.notes}


def test_columns_that_draws_change_by_their_signs_are_checked_each_for_itself() -> None:
    assert projected(SignedVectors).outcome is Outcome.PASSED


def test_a_factor_whose_product_alone_has_the_right_gradient_is_not_decided() -> None:
    backward = result_of(projected(SignedRoot), "backward")
    assert (backward.outcome, backward.reason, backward.findings) == (Outcome.INCONCLUSIVE, "right_for_product", ())


def test_a_wrong_gradient_of_what_they_share_is_found() -> None:
    result = projected(RootTooLarge)
    assert result_of(result, "backward").outcome is Outcome.FAILED
