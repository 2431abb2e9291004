"""As users test activations: against torch's own, on batches of images and of vectors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
me = pytest.importorskip("timm.layers.activations_me")

PAIRS = {
    "swish_me": torch.nn.functional.silu,
    "mish_me": torch.nn.functional.mish,
    "hard_sigmoid_me": torch.nn.functional.hardsigmoid,
    "hard_swish_me": torch.nn.functional.hardswish,
    "hard_mish_me": lambda x: 0.5 * x * (x + 2).clamp(0, 2),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("shape", [(8, 16), (2, 3, 5, 5)], ids=str)
def test_activations_and_their_gradients_are_those_of_torch(name: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    out = getattr(me, name)(x)
    expected = PAIRS[name](x)
    assert torch.allclose(out, expected, atol=1e-6)
    (grad,) = torch.autograd.grad(out.sum(), x)
    (wanted,) = torch.autograd.grad(expected.sum(), x)
    assert torch.allclose(grad, wanted, atol=1e-5)
