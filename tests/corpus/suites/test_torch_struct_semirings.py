"""As users test structured inference: samples are structures, checkpoints change nothing, marginals are gradients."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
torch_struct = pytest.importorskip("torch_struct")
semirings = pytest.importorskip("torch_struct.semirings")


def potentials() -> Any:
    torch.manual_seed(0)
    return torch.randn(2, 4, 3, 3, requires_grad=True)


@pytest.mark.parametrize(
    "semiring",
    [
        semirings.SampledSemiring,
        semirings.MultiSampledSemiring,
        semirings.GumbelMaxSemiring(0.5),
        semirings.GumbelCRFSemiring(1.0),
        semirings.SparseMaxSemiring,
    ],
    ids=["sampled", "multi_sampled", "gumbel_max", "gumbel_crf", "sparse_max"],
)
def test_the_gradient_of_a_chain_is_a_structure(semiring: Any) -> None:
    chain = torch_struct.LinearChain(semiring)
    found = chain.marginals(potentials())
    assert found.shape == (2, 4, 3, 3)
    assert bool((found >= 0).all())


@pytest.mark.parametrize("make", [semirings.CheckpointSemiring, semirings.CheckpointShardSemiring])
def test_checkpoints_change_no_result(make: Any) -> None:
    first, second = potentials(), potentials()
    arguments = (1,) if make is semirings.CheckpointSemiring else (16,)
    plain = torch_struct.LinearChain(semirings.LogSemiring).sum(first)
    checked = torch_struct.LinearChain(make(semirings.LogSemiring, *arguments)).sum(second)
    assert torch.allclose(plain, checked)
    plain.sum().backward()
    checked.sum().backward()
    assert torch.allclose(first.grad, second.grad)


def test_the_sparse_maximum_is_no_more_than_the_largest_score() -> None:
    scores = potentials()
    found = semirings.SparseMaxSemiring.sum(scores)
    assert bool((found <= scores.max(-1).values).all())
    found.sum().backward()
    assert torch.allclose(scores.grad.sum(-1), torch.ones(2, 4, 3))
