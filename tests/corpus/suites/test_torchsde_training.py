"""As users train stochastic differential equations: by the adjoint, on one path."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
torchsde = pytest.importorskip("torchsde")


class Drifting(torch.nn.Module):
    noise_type, sde_type = "diagonal", "stratonovich"

    def __init__(self) -> None:
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def f(self, t: Any, y: Any) -> Any:
        return -self.rate * y

    def g(self, t: Any, y: Any) -> Any:
        return 0.1 * torch.ones_like(y)


def test_the_adjoint_trains_drift_and_start() -> None:
    torch.manual_seed(0)
    sde, start = Drifting(), torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    times = torch.tensor([0.0, 0.2], dtype=torch.float64)
    path = torchsde.BrownianInterval(t0=0.0, t1=0.2, size=(2, 1), dtype=torch.float64, entropy=1)
    found = torchsde.sdeint_adjoint(sde, start, times, bm=path, method="midpoint", dt=0.1)
    found[-1].sum().backward()
    assert torch.allclose(start.grad, torch.full((2, 1), 0.905, dtype=torch.float64), rtol=1e-2)
    assert bool(sde.rate.grad.isfinite())
