"""As users test straight-through estimators: the forward rounds, the gradient passes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
rounding = pytest.importorskip("botorch.utils.rounding")


def test_rounding_passes_the_gradient() -> None:
    x = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    out = rounding.RoundSTE.apply(5 * x)
    assert torch.equal(out, (5 * x).round())
    out.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 5))


def test_one_hot_argmax_passes_the_gradient() -> None:
    x = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    out = rounding.OneHotArgmaxSTE.apply(x)
    assert torch.equal(out.sum(-1), torch.ones(4, dtype=torch.float64))
    out.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
