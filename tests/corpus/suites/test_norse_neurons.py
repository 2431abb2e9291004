"""As users test spiking neurons: spikes are zeros and ones, and a gradient reaches inputs and weights."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
threshold = pytest.importorskip("norse.torch.functional.threshold")
superspike = pytest.importorskip("norse.torch.functional.superspike")
decoder = pytest.importorskip("norse.torch.functional.spikes_to_times_decoder")
lif = pytest.importorskip("norse.torch.functional.adjoint.lif_adjoint")
refrac = pytest.importorskip("norse.torch.functional.adjoint.lif_refrac_adjoint")
multi = pytest.importorskip("norse.torch.functional.adjoint.lif_mc_adjoint")
multi_refrac = pytest.importorskip("norse.torch.functional.adjoint.lif_mc_refrac_adjoint")
lsnn = pytest.importorskip("norse.torch.functional.adjoint.lsnn_adjoint")

SIZE = 5


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def random(*shape: int, requires_grad: bool = True) -> Any:
    return torch.randn(*shape, requires_grad=requires_grad)


@pytest.mark.parametrize("method", ["super", "triangle", "tanh", "circ", "heavi_erfc"])
def test_thresholds_pass_a_gradient(method: str) -> None:
    x = random(4, SIZE)
    spikes = threshold.threshold(x, method, 2.0)
    assert set(spikes.unique().tolist()) <= {0.0, 1.0}
    spikes.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("function", [threshold.logistic_fn, threshold.circ_dist_fn])
def test_random_thresholds_pass_a_gradient(function: Any) -> None:
    x = random(4, SIZE)
    function(x, 2.0).sum().backward()
    assert x.grad.shape == x.shape


def test_the_first_spike_of_a_train_is_decoded() -> None:
    spikes = (torch.rand(8, 2, 3) > 0.3).float().requires_grad_()
    times = decoder.ToSpikeTimes.apply(spikes, torch.as_tensor(2))
    assert times.shape == (2, 2, 3)
    assert bool((times[0] <= times[1]).all())


def weights(count: int) -> list[Any]:
    return [random(SIZE, SIZE) for _ in range(count)]


def spikes_of(*shape: int) -> Any:
    return (torch.rand(*shape) > 0.5).float()


def refractory(state: Any) -> Any:
    return refrac.LIFRefracState(state, rho=torch.tensor([0.0, 0.0, 3.0, 0.0, 5.0]))


def lif_state() -> Any:
    return lif.LIFState(z=spikes_of(2, SIZE), v=random(2, SIZE), i=random(2, SIZE))


TRAINED = {
    "lif": lambda x, w: lif.lif_adjoint_step(x, lif_state(), w[0], w[1]),
    "feed_forward": lambda x, w: lif.lif_feed_forward_adjoint_step(
        x @ w[0], lif.LIFFeedForwardState(v=random(2, SIZE), i=random(2, SIZE))
    ),
    "refrac_feed_forward": lambda x, w: refrac.lif_refrac_feed_forward_adjoint_step(
        x @ w[0],
        refrac.LIFRefracFeedForwardState(
            refrac.LIFFeedForwardState(v=random(2, SIZE), i=random(2, SIZE)),
            rho=torch.tensor([0.0, 0.0, 3.0, 0.0, 5.0]),
        ),
    ),
    "lsnn": lambda x, w: lsnn.lsnn_adjoint_step(
        x, lsnn.LSNNState(z=spikes_of(2, SIZE), v=random(2, SIZE), i=random(2, SIZE), b=random(2, SIZE)), w[0], w[1]
    ),
    "lsnn_feed_forward": lambda x, w: lsnn.lsnn_feed_forward_adjoint_step(
        x @ w[0], lsnn.LSNNFeedForwardState(v=random(2, SIZE), i=random(2, SIZE), b=random(2, SIZE))
    ),
}
STEPS = {
    "refrac": lambda x, w: refrac.lif_refrac_adjoint_step(x, refractory(lif_state()), w[0], w[1]),
    "multi_compartment": lambda x, w: multi.lif_mc_adjoint_step(x, lif_state(), w[0], w[1], w[2]),
    "multi_compartment_refrac": lambda x, w: multi_refrac.lif_mc_refrac_adjoint(
        x, refractory(lif_state()), w[0], w[1], w[2]
    ),
}
SPARSE = {
    "lif": lambda x, w: lif.lif_adjoint_step_sparse(
        x.to_sparse(), lif_state()._replace(z=spikes_of(2, SIZE).to_sparse()), w[0], w[1]
    ),
    "feed_forward": lambda x, w: lif.lif_feed_forward_adjoint_step_sparse(
        x.to_sparse(), lif.LIFFeedForwardState(v=random(2, SIZE), i=random(2, SIZE))
    ),
}


@pytest.mark.parametrize("name", TRAINED)
def test_a_step_of_the_adjoint_trains_the_weights(name: str) -> None:
    ours = weights(3)
    spikes, _ = TRAINED[name](spikes_of(2, SIZE).requires_grad_(), ours)
    assert set(spikes.unique().tolist()) <= {0.0, 1.0}
    spikes.sum().backward()
    assert ours[0].grad.shape == (SIZE, SIZE)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_spikes(name: str) -> None:
    spikes, _ = STEPS[name](spikes_of(2, SIZE), weights(3))
    assert set(spikes.unique().tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_spikes_take_a_step(name: str) -> None:
    spikes, _ = SPARSE[name](spikes_of(2, SIZE), weights(2))
    assert set(spikes.to_dense().unique().tolist()) <= {0.0, 1.0}
