"""As users test rotations: the nearest one to a rotation is itself, and a gradient reaches the matrix."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
roma = pytest.importorskip("roma")


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("regularization", [0.0, 0.1])
def test_the_nearest_rotation_is_a_rotation(size: int, regularization: float) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(5, size, size, dtype=torch.float64, requires_grad=True)
    rotation = roma.special_procrustes(matrix, regularization=regularization)
    assert torch.allclose(rotation @ rotation.mT, torch.eye(size, dtype=torch.float64).expand_as(rotation))
    rotation.square().sum().backward()
    assert bool(matrix.grad.isfinite().all())


def test_rigid_registration_finds_the_motion() -> None:
    torch.manual_seed(0)
    points = torch.randn(20, 3, dtype=torch.float64, requires_grad=True)
    rotation = roma.random_rotmat(dtype=torch.float64)
    moved = points @ rotation.mT + torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    found, _ = roma.rigid_points_registration(points, moved)
    assert torch.allclose(found, rotation)
    found.sum().backward()
    assert bool(points.grad.isfinite().all())
