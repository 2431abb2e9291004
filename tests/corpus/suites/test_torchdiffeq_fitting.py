"""As users test differential equations: against the exact solution, by the adjoint, through events and jumps."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
torchdiffeq = pytest.importorskip("torchdiffeq")


class Decay(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, t: Any, y: Any) -> Any:
        return -self.rate * y


@pytest.mark.parametrize("solve", [torchdiffeq.odeint, torchdiffeq.odeint_adjoint])
@pytest.mark.parametrize("method", ["dopri5", "rk4"])
def test_decay_has_the_gradient_of_the_exact_solution(solve: Any, method: str) -> None:
    decay, times = Decay(), torch.linspace(0, 1, 6, dtype=torch.float64)
    y0 = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    found = solve(decay, y0, times, method=method)[-1]
    found.sum().backward()
    exact = torch.exp(-decay.rate.detach())
    assert torch.allclose(found, y0 * exact, rtol=1e-4)
    assert torch.allclose(decay.rate.grad, -(y0 * exact).sum(), rtol=1e-3)


@pytest.mark.parametrize("solve", [torchdiffeq.odeint, torchdiffeq.odeint_adjoint])
def test_the_end_time_has_a_gradient(solve: Any) -> None:
    times = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
    solve(Decay(), torch.ones(2, dtype=torch.float64), times)[-1].sum().backward()
    assert torch.allclose(times.grad[-1], torch.tensor(-2 * 0.7, dtype=torch.float64) * 0.4966, rtol=1e-2)


class Falling(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gravity = torch.nn.Parameter(torch.tensor(9.8, dtype=torch.float64))

    def forward(self, t: Any, state: Any) -> Any:
        return torch.stack([state[1], -self.gravity])


@pytest.mark.parametrize("solve", [torchdiffeq.odeint, torchdiffeq.odeint_adjoint])
def test_the_time_of_impact_has_a_gradient(solve: Any) -> None:
    falling = Falling()
    start = torch.tensor([10.0, 0.0], dtype=torch.float64, requires_grad=True)
    time, _ = torchdiffeq.odeint_event(
        falling, start, torch.tensor(0.0, dtype=torch.float64), event_fn=lambda t, y: y[0], odeint_interface=solve
    )
    assert torch.allclose(time, torch.sqrt(2 * start[0] / falling.gravity), rtol=1e-4)
    time.backward()
    assert torch.allclose(start.grad[0], 0.5 * time.detach() / 10, rtol=1e-3)


def test_steps_may_stop_at_jumps() -> None:
    times = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    options = {"jump_t": torch.tensor([0.5], dtype=torch.float64, requires_grad=True)}
    found = torchdiffeq.odeint(Decay(), torch.ones(2, dtype=torch.float64), times, method="dopri5", options=options)
    found[-1].sum().backward()
    assert bool(times.grad.isfinite().all())
