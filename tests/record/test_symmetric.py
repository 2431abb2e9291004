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
