"""As users test implicit functions: against exact solutions, and gradients against those of the formula."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
xitorch = pytest.importorskip("xitorch")
integrate = pytest.importorskip("xitorch.integrate")
optimize = pytest.importorskip("xitorch.optimize")
linalg = pytest.importorskip("xitorch.linalg")


def double(*values: float) -> Any:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def matrix(size: int) -> Any:
    torch.manual_seed(0)
    raw = torch.randn(size, size, dtype=torch.float64)
    return (raw @ raw.mT + size * torch.eye(size, dtype=torch.float64)).requires_grad_()


def test_the_root_of_a_polynomial() -> None:
    a = double(2.0, 3.0)
    root = optimize.rootfinder(lambda y, a: y**2 - a, torch.ones(2, dtype=torch.float64), params=(a,))
    assert torch.allclose(root, a.sqrt())
    root.sum().backward()
    assert torch.allclose(a.grad, 0.5 / a.detach().sqrt())


def test_the_minimum_of_a_bowl() -> None:
    a = double(2.0, 3.0)
    found = optimize.minimize(lambda y, a: ((y - a) ** 2).sum(), torch.zeros(2, dtype=torch.float64), params=(a,))
    assert torch.allclose(found, a, atol=1e-4)
    found.sum().backward()
    assert torch.allclose(a.grad, torch.ones(2, dtype=torch.float64), atol=1e-4)


def test_the_integral_of_an_exponential() -> None:
    rate = double(0.7)
    found = integrate.quad(lambda x, rate: torch.exp(rate * x), double(0.0), double(1.0), params=(rate,))
    assert torch.allclose(found, (rate.exp() - 1) / rate)
    found.sum().backward()
    assert bool(rate.grad.isfinite().all())


def test_decay_in_time() -> None:
    rate, start = double(0.7), double(1.0, 2.0)
    times = torch.linspace(0, 1, 5, dtype=torch.float64).requires_grad_()
    found = integrate.solve_ivp(lambda t, y, rate: -rate * y, times, start, params=(rate,))
    assert torch.allclose(found[-1], start * torch.exp(-rate), rtol=1e-4)
    found[-1].sum().backward()
    assert torch.allclose(start.grad, torch.exp(-rate.detach()).expand(2), rtol=1e-4)


def test_the_mean_of_a_sampled_normal() -> None:
    torch.manual_seed(0)
    width = double(1.0)
    found = integrate.mcquad(
        lambda x, w: x**2 * w,
        lambda x, w: -(x**2).sum() / 2 / w,
        torch.zeros(1, dtype=torch.float64),
        fparams=(width,),
        pparams=(width,),
        nsamples=200,
        nburnout=50,
    )
    found.sum().backward()
    assert bool(width.grad.isfinite().all())


@pytest.mark.parametrize("method", ["cg", "bicgstab"])
def test_solving_undoes_the_product(method: str) -> None:
    a, b = matrix(6), torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    operator = xitorch.LinearOperator.m(a, is_hermitian=True)
    found = linalg.solve(operator, b, method=method, rtol=1e-10)
    assert torch.allclose(a @ found, b, atol=1e-6)
    found.sum().backward()
    assert bool(a.grad.isfinite().all())


def test_eigenvalues_sum_to_the_trace() -> None:
    a = matrix(4)
    values, _ = linalg.symeig(xitorch.LinearOperator.m(a, is_hermitian=True))
    assert torch.allclose(values.sum(), a.trace())
    values.square().sum().backward()
    assert torch.allclose(a.grad, 2 * a.detach(), atol=1e-6)


def test_the_lowest_eigenvalues_by_davidson() -> None:
    torch.manual_seed(0)
    raw = torch.diag(torch.arange(1.0, 11.0, dtype=torch.float64)) + 0.1 * matrix(10).detach() / 10
    a = raw.requires_grad_()
    values, vectors = linalg.symeig(
        xitorch.LinearOperator.m(a, is_hermitian=True), neig=2, method="davidson", min_eps=1e-10
    )
    assert torch.allclose(values, torch.linalg.eigvalsh(a)[:2], atol=1e-5)
    (values.sum() + vectors.square().sum()).backward()
    assert bool(a.grad.isfinite().all())
