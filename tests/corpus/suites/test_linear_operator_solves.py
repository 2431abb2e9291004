"""As users test structured matrices: results are those of the dense matrix, and gradients reach what it is made of."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
linear_operator = pytest.importorskip("linear_operator")
operators = pytest.importorskip("linear_operator.operators")
settings = pytest.importorskip("linear_operator.settings")


def made() -> tuple[Any, Any, Any]:
    """A Toeplitz matrix with a diagonal added, and what both are made of."""
    column = torch.tensor([4.0, 1.0, 0.5, 0.2, 0.1], dtype=torch.float64, requires_grad=True)
    diagonal = torch.tensor([1.0, 1.5, 2.0, 1.2, 0.7], dtype=torch.float64, requires_grad=True)
    added = operators.AddedDiagLinearOperator(
        operators.ToeplitzLinearOperator(column), operators.DiagLinearOperator(diagonal)
    )
    return added, column, diagonal


def sides(count: int) -> Any:
    torch.manual_seed(0)
    return torch.randn(5, count, dtype=torch.float64, requires_grad=True)


@pytest.fixture(autouse=True)
def _iterative() -> Any:
    with settings.fast_computations(), settings.max_cholesky_size(1), settings.cg_tolerance(1e-10):
        yield


def test_products() -> None:
    matrix, column, _ = made()
    right = sides(3)
    found = matrix @ right
    assert torch.allclose(found, matrix.to_dense() @ right)
    found.square().sum().backward()
    assert bool(column.grad.isfinite().all())


def test_solves() -> None:
    matrix, column, _ = made()
    right = sides(2)
    found = matrix.solve(right)
    assert torch.allclose(matrix.to_dense() @ found, right, atol=1e-5)
    found.sum().backward()
    assert bool(column.grad.isfinite().all())


def test_solves_from_both_sides() -> None:
    matrix, _, diagonal = made()
    matrix.solve(sides(2), sides(3).mT).sum().backward()
    assert bool(diagonal.grad.isfinite().all())


def test_quadratic_forms() -> None:
    matrix, column, _ = made()
    right = sides(2)
    found, logdet = matrix.inv_quad_logdet(inv_quad_rhs=right, logdet=True)
    assert torch.allclose(found, (right * torch.linalg.solve(matrix.to_dense(), right)).sum(), atol=1e-5)
    (found + logdet).backward()
    assert bool(column.grad.isfinite().all())
    quadratic = made()[0].inv_quad(sides(2))
    assert torch.allclose(quadratic, found.detach(), atol=1e-5)
    quadratic.sum().backward()


def test_roots() -> None:
    matrix, column, _ = made()
    root = matrix.root_decomposition().to_dense()
    assert torch.allclose(root, matrix.to_dense(), atol=1e-4)
    inverse = matrix.root_inv_decomposition().to_dense()
    assert torch.allclose(inverse, torch.linalg.inv(matrix.to_dense()), atol=1e-3)
    (root.sum() + inverse.sum()).backward()
    assert bool(column.grad.isfinite().all())


def test_inverse_square_roots() -> None:
    matrix, column, _ = made()
    right = sides(2)
    found = matrix.sqrt_inv_matmul(right)
    assert torch.allclose(found.square().sum(), (right * torch.linalg.solve(matrix.to_dense(), right)).sum(), rtol=1e-2)
    found.sum().backward()
    assert bool(column.grad.isfinite().all())


def test_diagonalisations() -> None:
    matrix, _, _ = made()
    values, vectors = matrix.diagonalization(method="lanczos")
    assert torch.allclose(values.sum(), matrix.to_dense().trace(), rtol=1e-3)
    assert vectors.shape[-2] == 5


def test_pivoted_factors() -> None:
    matrix, column, _ = made()
    factor = matrix.pivoted_cholesky(rank=5)
    assert torch.allclose(factor @ factor.mT, matrix.to_dense(), atol=1e-6)
    factor.sum().backward()
    assert bool(column.grad.isfinite().all())


def test_sparse_products() -> None:
    sparse = torch.eye(4, 5, dtype=torch.float64).to_sparse()
    right = sides(3)
    found = linear_operator.dsmm(sparse, right)
    assert torch.allclose(found, right[:4])
    found.sum().backward()
    assert right.grad.shape == right.shape
