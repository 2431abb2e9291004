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


def slope_of(x: object, grad: object, spikes: object) -> object:
    """A surrogate of our own."""
    return grad / (1 + 5 * x.abs()) ** 2


def test_a_surrogate_of_our_own_passes_a_gradient() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, requires_grad=True)
    surrogate.custom_surrogate(slope_of)(x).sum().backward()
    assert torch.allclose(x.grad, 1 / (1 + 5 * x.detach().abs()) ** 2)


@pytest.mark.parametrize("tolerance", [0, 2])
def test_several_spikes_of_a_train_have_times(tolerance: int) -> None:
    torch.manual_seed(0)
    spikes = torch.rand(10, 3, 5, requires_grad=True)
    fired = surrogate.atan()(spikes - 0.4)
    loss = functional.mse_temporal_loss(target_is_time=True, multi_spike=True, tolerance=tolerance)
    loss(fired, torch.tensor([1.0, 4.0]).view(2, 1, 1).expand(2, 3, 5).clone()).backward()
    assert spikes.grad.shape == spikes.shape


@pytest.mark.parametrize("module", ["leakyparallel", "leakykernel"])
def test_layers_of_all_steps_at_once_train(module: str) -> None:
    layers = pytest.importorskip(f"snntorch._neurons.{module}")
    kind = getattr(layers, "LeakyKernel" if module == "leakykernel" else "LeakyParallel")
    torch.manual_seed(0)
    layer, x = kind(input_size=4, hidden_size=3), torch.randn(6, 2, 4, requires_grad=True)
    spikes = layer(x)
    spikes = spikes[0] if isinstance(spikes, tuple) else spikes
    spikes.sum().backward()
    assert x.grad.shape == x.shape
