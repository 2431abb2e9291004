"""As users test soft sorting: against the hard one, at a small strength, and that training moves ranks."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
torchsort = pytest.importorskip("torchsort")


@pytest.mark.parametrize("regularization", ["l2", "kl"])
def test_soft_sort_nears_the_hard_one(regularization: str) -> None:
    x = torch.tensor([[8.0, 0.0, 5.0, 3.0, 2.0], [1.0, 7.0, -2.0, 4.0, 0.5]], requires_grad=True)
    out = torchsort.soft_sort(x, regularization=regularization, regularization_strength=0.1)
    assert torch.allclose(out, x.sort(-1).values, atol=0.3)
    out[:, 0].sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("regularization", ["l2", "kl"])
def test_soft_ranks_lie_between_one_and_n(regularization: str) -> None:
    x = torch.tensor([[8.0, 0.0, 5.0, 3.0, 2.0]], requires_grad=True)
    ranks = torchsort.soft_rank(x, regularization=regularization, regularization_strength=1.0)
    assert bool((ranks > 0.5).all() & (ranks < 5.5).all())
    (ranks * torch.arange(5)).sum().backward()
    assert bool(torch.isfinite(x.grad).all())
