"""Outputs that are one of many, by chance or by choice: checked by what all of them share, and wrong ones found."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine.checks.wrong import result_of
from torch import Tensor

from gradbot.engine.api import check
from gradbot.engine.projections import symmetric
from gradbot.model import Outcome


def diagonal_heavy() -> Tensor:
    raw = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return (raw + 3 * torch.eye(3)).requires_grad_()


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


class NullSpace(torch.autograd.Function):
    """An orthonormal basis of the null space of a wide matrix, with the gradient of the subspace."""

    factor = 1.0

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        basis: Tensor = torch.linalg.svd(matrix).Vh.mT[..., matrix.shape[-2] :].contiguous()
        ctx.save_for_backward(matrix, basis)
        return basis

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        matrix, basis = ctx.saved_tensors
        # dV = -A⁺ dA V, out of the null space alone
        inverse = torch.linalg.pinv(matrix)
        return ctx._forward_cls.factor * -(inverse.mT @ grad_output @ basis.mT)


class NullSpaceTooLarge(NullSpace):
    factor = 1.5


class Rotation(NullSpace):
    """Not one of many: a rotation by an angle, whose columns are orthonormal like any basis."""

    @staticmethod
    def forward(ctx: Any, angle: Tensor) -> Tensor:
        ctx.save_for_backward(angle)
        return torch.stack([torch.cos(angle), -torch.sin(angle), torch.sin(angle), torch.cos(angle)]).view(2, 2)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (angle,) = ctx.saved_tensors
        rows = torch.stack([-torch.sin(angle), -torch.cos(angle), torch.cos(angle), -torch.sin(angle)])
        return ctx._forward_cls.factor * (grad_output.reshape(-1) @ rows)


class RotationTooLarge(Rotation):
    factor = 2.0


@pytest.mark.parametrize("shape", [(3, 6), (2, 3, 6)])
@pytest.mark.parametrize(("cls", "outcome"), [(NullSpace, Outcome.INCONCLUSIVE), (NullSpaceTooLarge, Outcome.FAILED)])
def test_a_basis_whose_gradient_is_that_of_the_subspace_is_not_decided(
    shape: tuple[int, ...], cls: Any, outcome: Outcome
) -> None:
    matrix = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    backward = result_of(check(cls.apply, (matrix,), checks=["backward"]), "backward")
    assert backward.outcome is outcome
    assert (backward.reason == "right_for_product") == (outcome is Outcome.INCONCLUSIVE)


class RandomTurn(torch.autograd.Function):
    """A random orthogonal matrix, turned by an angle: its product with itself is the identity, whatever the angle."""

    @staticmethod
    def forward(ctx: Any, angle: Tensor) -> Tensor:
        turn, _ = torch.linalg.qr(angle.new_empty(2, 2).normal_())
        ctx.save_for_backward(angle, turn)
        return Rotation.forward(ctx, angle) @ turn

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output.sum()


@pytest.mark.parametrize("cls", [RotationTooLarge, RandomTurn])
def test_a_product_that_is_the_identity_whatever_the_inputs_excuses_nothing(cls: Any) -> None:
    angle = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert result_of(check(cls.apply, (angle,)), "backward").outcome is Outcome.FAILED


def test_a_right_rotation_passes() -> None:
    angle = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert check(Rotation.apply, (angle,), checks=["backward"]).outcome is Outcome.PASSED
