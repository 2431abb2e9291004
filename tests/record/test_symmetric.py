"""Functions of symmetric matrices, recorded with such: right ones pass with a note, wrong ones and others fail."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradbot.model import Case, CaseResult, CheckSettings, InputSource, Outcome
from gradbot.record.symmetric import check_recorded


class Eigenvalues(torch.autograd.Function):
    """Reads one triangle, and gives a symmetric gradient."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        values, ctx.vectors = torch.linalg.eigh(matrix)
        return values

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return ctx.vectors @ torch.diag_embed(grad_output) @ ctx.vectors.mT


class Doubled(Eigenvalues):
    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return 2 * Eigenvalues.backward(ctx, grad_output)


class Transposed(torch.autograd.Function):
    """A function of any matrix, whose wrong gradient no step along symmetric ones would show."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return (matrix * weight).sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return grad_output * ctx.saved_tensors[0].mT, None


class Solved(torch.autograd.Function):
    """Conjugate gradients: the solution of a symmetric system, found in as many steps as it has unknowns."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, b: Tensor) -> Tensor:
        x, r = torch.zeros_like(b), b.clone()
        p = r
        for _ in b:
            along = matrix @ p
            alpha = (r @ r) / (p @ along)
            x, before, r = x + alpha * p, r @ r, r - alpha * along
            p = r + (r @ r) / before * p
        ctx.save_for_backward(matrix, x)
        return x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        matrix, x = ctx.saved_tensors
        by_b = torch.linalg.solve(matrix.mT, grad_output)
        return -torch.outer(by_b, x), by_b


class SolvedHalf(Solved):
    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        by_matrix, by_b = Solved.backward(ctx, grad_output)
        return by_matrix / 2, by_b


class SolvedByB(Solved):
    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        by_matrix, by_b = Solved.backward(ctx, grad_output)
        return by_matrix, 2 * by_b


class ExactlySolvedTransposed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, b: Tensor) -> Tensor:
        x = torch.linalg.solve(matrix, b)
        ctx.save_for_backward(matrix, x)
        return x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        by_matrix, by_b = Solved.backward(ctx, grad_output)
        return by_matrix.mT, by_b


def looked_at(cls: Any, *args: Any) -> CaseResult:
    settings = CheckSettings(checks=("backward",))
    case = Case(id="c", target="m:F", name="c", source=InputSource.RECORDED, reference="", settings=settings)
    return check_recorded(case, cls.apply, args, {}, function_class=cls)


def matrix(*, symmetric: bool = True) -> Tensor:
    raw = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return ((raw + raw.mT) if symmetric else raw).requires_grad_()


def test_a_right_function_of_symmetric_matrices_passes_with_a_note() -> None:
    result = looked_at(Eigenvalues, matrix())
    assert result.outcome is Outcome.PASSED
    assert [note.code for note in result.notes] == ["symmetric_assumed"]


@pytest.mark.parametrize(("cls", "symmetric"), [(Doubled, True), (Eigenvalues, False)])
def test_wrong_ones_and_calls_with_other_matrices_fail(cls: Any, symmetric: bool) -> None:
    result = looked_at(cls, matrix(symmetric=symmetric))
    assert result.outcome is Outcome.FAILED
    assert result.notes == ()


def test_a_transposed_gradient_is_not_excused_by_symmetric_inputs() -> None:
    result = looked_at(Transposed, matrix(), matrix(symmetric=False).detach())
    assert result.outcome is Outcome.FAILED


def system() -> tuple[Tensor, Tensor]:
    raw = matrix(symmetric=False).detach()
    return (raw @ raw.mT + torch.eye(4)).requires_grad_(), torch.arange(1.0, 5.0, dtype=torch.float64).requires_grad_()


def test_a_gradient_need_not_be_symmetric_where_the_matrices_are() -> None:
    result = looked_at(Solved, *system())
    assert result.outcome is Outcome.PASSED
    assert [note.code for note in result.notes] == ["symmetric_assumed"]


@pytest.mark.parametrize("cls", [SolvedHalf, ExactlySolvedTransposed])
def test_what_is_wrong_along_symmetric_steps_or_transposed_still_fails(cls: Any) -> None:
    result = looked_at(cls, *system())
    assert result.outcome is Outcome.FAILED
    assert result.notes == ()


def test_only_the_input_by_which_it_is_wrong_is_blamed() -> None:
    result = looked_at(SolvedByB, *system())
    assert result.outcome is Outcome.FAILED
    assert {finding.input_name for check in result.checks for finding in check.findings} == {"b"}
