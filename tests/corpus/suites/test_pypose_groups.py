"""As users test Lie groups: compositions undo themselves, points move, and a gradient reaches the pose."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pypose = pytest.importorskip("pypose")

GROUPS = {
    "SO3": (pypose.randn_SO3, pypose.randn_so3),
    "SE3": (pypose.randn_SE3, pypose.randn_se3),
    "Sim3": (pypose.randn_Sim3, pypose.randn_sim3),
    "RxSO3": (pypose.randn_RxSO3, pypose.randn_rxso3),
}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", GROUPS)
def test_exp_undoes_log(name: str) -> None:
    pose = GROUPS[name][0](5, sigma=0.5, dtype=torch.float64, requires_grad=True)
    back = pose.Log().Exp()
    assert torch.allclose((back @ pose.Inv()).Log().tensor(), torch.zeros(1, dtype=torch.float64), atol=1e-2)
    back.tensor().sum().backward()
    assert bool(pose.grad.isfinite().all())


@pytest.mark.parametrize("name", GROUPS)
def test_the_inverse_undoes_the_product(name: str) -> None:
    first = GROUPS[name][0](4, dtype=torch.float64, requires_grad=True)
    second = GROUPS[name][0](4, dtype=torch.float64, requires_grad=True)
    found = first.Inv() @ (first @ second)
    assert torch.allclose(found.tensor().abs(), second.tensor().abs())
    found.tensor().sum().backward()
    assert bool(second.grad.isfinite().all())


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("width", [3, 4])
def test_points_move_there_and_back(name: str, width: int) -> None:
    pose = GROUPS[name][0](4, dtype=torch.float64, requires_grad=True)
    points = torch.randn(4, width, dtype=torch.float64, requires_grad=True)
    moved = pose.Act(points)
    assert torch.allclose(pose.Inv().Act(moved), points)
    moved.square().sum().backward()
    assert bool(points.grad.isfinite().all())


@pytest.mark.parametrize("name", GROUPS)
def test_adjoints_carry_tangents(name: str) -> None:
    pose = GROUPS[name][0](4, dtype=torch.float64, requires_grad=True)
    tangent = GROUPS[name][1](4, sigma=0.1, dtype=torch.float64, requires_grad=True)
    carried, back = pose.Adj(tangent), pose.AdjT(tangent)
    assert carried.shape == tangent.shape == back.shape
    (carried.tensor().sum() + back.tensor().sum()).backward()
    assert bool(tangent.grad.isfinite().all())
