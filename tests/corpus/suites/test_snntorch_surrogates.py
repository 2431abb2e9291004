"""As users test spiking layers: spikes are zeros and ones, and a gradient reaches the input."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
surrogate = pytest.importorskip("snntorch.surrogate")
snntorch = pytest.importorskip("snntorch")
functional = pytest.importorskip("snntorch.functional")
quant = pytest.importorskip("snntorch.functional.quant")

MADE = (
    "atan",
    "fast_sigmoid",
    "sigmoid",
    "SFS",
    "spike_rate_escape",
    "straight_through_estimator",
    "triangular",
    "SSO",
    "heaviside",
)


@pytest.mark.parametrize("name", MADE)
def test_spikes_pass_a_gradient(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, requires_grad=True)
    spikes = getattr(surrogate, name)()(x)
    assert set(spikes.unique().tolist()) <= {0.0, 1.0}
    spikes.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("loss", ["mse_temporal_loss", "ce_temporal_loss"])
def test_temporal_losses_reach_the_spikes(loss: str) -> None:
    torch.manual_seed(0)
    spikes = torch.rand(10, 3, 5, requires_grad=True)
    fired = surrogate.atan()(spikes - 0.7)
    getattr(functional, loss)()(fired, torch.tensor([0, 2, 4])).backward()
    assert spikes.grad.shape == spikes.shape


def test_states_are_quantised() -> None:
    torch.manual_seed(0)
    state = torch.randn(4, 6, requires_grad=True)
    quantised = quant.state_quant(num_bits=3)(state)
    assert len(quantised.unique()) <= 8
    quantised.sum().backward()
    assert state.grad.shape == state.shape


def test_a_leaky_layer_trains() -> None:
    torch.manual_seed(0)
    layer = snntorch.Leaky(beta=0.8, spike_grad=surrogate.fast_sigmoid())
    x, potential = torch.randn(3, 5, requires_grad=True), layer.init_leaky()
    for _ in range(3):
        spikes, potential = layer(x, potential)
    (spikes.sum() + potential.sum()).backward()
    assert bool(torch.isfinite(x.grad).all())
