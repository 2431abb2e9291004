"""As users test gradient reversal: the features are pushed the other way."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
revgrad = pytest.importorskip("pytorch_revgrad")


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_gradients_are_reversed(alpha: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4)
    plain = torch.nn.Linear(4, 2)
    (expected,) = torch.autograd.grad(plain(x).square().sum(), plain.weight)
    (found,) = torch.autograd.grad(revgrad.RevGrad(alpha=alpha)(plain(x)).square().sum(), plain.weight)
    assert torch.allclose(found, -alpha * expected)
