"""Tensors of any layout: sparse ones by their specified values, mkldnn as dense, in every float dtype."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine.checks.wrong import result_of
from torch import Tensor

from gradbot.engine.api import check
from gradbot.engine.representation import represent
from gradbot.model import Outcome

DENSE = torch.tensor([[1.0, 0, 2, 0], [0, 0, 0, 3], [4, 5, 0, 0], [0, 0, 6, 7]], dtype=torch.float64)

SPARSE = {
    "coo": lambda t: t.to_sparse(),
    "coo hybrid": lambda t: t.to_sparse(1),
    "csr": lambda t: t.to_sparse_csr(),
    "csc": lambda t: t.to_sparse_csc(),
    "bsr": lambda t: t.to_sparse_bsr((2, 2)),
    "bsc": lambda t: t.to_sparse_bsc((2, 2)),
}


def sparse(layout: str, values: Tensor = DENSE) -> Tensor:
    return SPARSE[layout](values).detach().requires_grad_()


class ToDense(torch.autograd.Function):
    """to_dense, whose backward multiplies by `factor`."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return tensor.to_dense()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.factor * grad, None


@pytest.mark.parametrize("layout", SPARSE)
def test_a_right_function_of_a_sparse_tensor_passes(layout: str) -> None:
    case = check(lambda s: s.to_dense().sin(), (sparse(layout),))
    assert result_of(case, "backward").outcome is Outcome.PASSED, case
    assert case.outcome is Outcome.PASSED, case


@pytest.mark.parametrize("layout", SPARSE)
def test_a_wrong_function_of_a_sparse_tensor_fails(layout: str) -> None:
    right = check(ToDense.apply, (sparse(layout), 1.0))
    wrong = check(ToDense.apply, (sparse(layout), 2.0))
    assert result_of(right, "backward").outcome is Outcome.PASSED, right
    assert result_of(wrong, "backward").outcome is Outcome.FAILED, wrong


@pytest.mark.parametrize("layout", SPARSE)
def test_a_representation_restores_its_tensor(layout: str) -> None:
    for values in (DENSE, torch.complex(DENSE, 2 * DENSE)):
        tensor = sparse(layout, values)
        form = represent(tensor)
        assert form.real.dtype is torch.float64
        assert form.real.layout is torch.strided
        restored = form.restore(form.real)
        assert restored.layout == tensor.layout
        assert torch.equal(restored.to_dense(), tensor.to_dense())


def test_products_of_sparse_and_dense_are_checked_by_both() -> None:
    dense = torch.rand(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    case = check(torch.sparse.mm, (sparse("coo"), dense))
    result = result_of(case, "backward")
    assert (result.outcome, len(case.inputs)) == (Outcome.PASSED, 2)


def test_an_uncoalesced_tensor_is_checked_by_each_of_its_values() -> None:
    places = torch.tensor([[0, 0, 1], [1, 1, 0]])
    tensor = torch.sparse_coo_tensor(
        places, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), (2, 2)
    ).requires_grad_()
    case = check(lambda s: s.to_dense() ** 2, (tensor,))
    assert case.outcome is Outcome.PASSED
    assert represent(tensor).real.shape == (3,)


def test_second_derivatives_by_sparse_tensors_are_checked() -> None:
    case = check(lambda s: s.to_dense() ** 3, (sparse("coo"),))
    assert result_of(case, "double_backward").outcome is Outcome.PASSED


def test_sparse_outputs_are_compared_dense() -> None:
    case = check(lambda s: s * 2, (sparse("coo"),))
    assert result_of(case, "backward").outcome is Outcome.PASSED


def test_forward_mode_of_sparse_inputs_is_unsupported() -> None:
    result = result_of(check(lambda s: s.to_dense(), (sparse("csr"),)), "forward_ad")
    assert (result.outcome, result.reason) == (Outcome.UNSUPPORTED, "no_forward_ad_layout")


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no mkldnn")
def test_mkldnn_inputs_are_checked() -> None:
    tensor = torch.rand(2, 3, generator=torch.Generator().manual_seed(1)).to_mkldnn().requires_grad_()
    right = check(lambda t: t.to_dense() * 2, (tensor,))
    wrong = check(lambda t: ToDense.apply(t.to_dense(), 1.5), (tensor,))
    assert result_of(right, "backward").outcome is Outcome.PASSED
    assert result_of(wrong, "backward").outcome is Outcome.FAILED


@pytest.mark.parametrize(
    "arrange",
    [lambda t: t.mT, lambda t: t[:, ::2], lambda t: t.flip(0)[1:], lambda t: t.unsqueeze(0).transpose(0, 1)],
)
def test_strided_inputs_of_any_strides_are_checked(arrange: Any) -> None:
    tensor = arrange(DENSE + 0.5).detach().requires_grad_()
    assert check(lambda t: (t * t).cumsum(-1), (tensor,)).outcome is Outcome.PASSED


@pytest.mark.parametrize("conjugate", [torch.conj, lambda t: torch.view_as_real(t)[..., 1], lambda t: t.conj().imag])
def test_conjugate_and_negative_views_are_checked(conjugate: Any) -> None:
    tensor = conjugate(torch.complex(DENSE, 2 * DENSE + 1)).detach().requires_grad_()
    assert check(lambda t: t * t, (tensor,)).outcome is Outcome.PASSED
