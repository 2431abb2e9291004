"""The three deprecated getters return what torch's return."""

from __future__ import annotations

import importlib

import pytest
import torch

import gradbot

torchs = importlib.import_module("torch.autograd.gradcheck")


def checked(*shape, dtype=torch.float64):
    return torch.rand(shape, dtype=dtype, generator=torch.Generator().manual_seed(3)).requires_grad_()


def sparse_identity():
    return torch.eye(2, dtype=torch.float64).to_sparse().requires_grad_()


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-8)


NUMERICAL = {
    "two inputs": (lambda xs: xs[0] @ xs[1], lambda: (checked(2, 3), checked(3, 2)), {}),
    "two outputs": (lambda xs: (xs[0].sin(), xs[0].sum()), lambda: (checked(3),), {"eps": 1e-5}),
    "an unchecked input": (lambda xs: xs[0] * xs[1], lambda: (torch.ones(3, dtype=torch.float64), checked(3)), {}),
    "complex input": (lambda xs: xs[0].abs() ** 2, lambda: (checked(3, dtype=torch.complex128),), {}),
    "sparse input": (
        lambda xs: xs[0].to_dense() ** 2,
        lambda: (torch.eye(2).double().to_sparse().requires_grad_(),),
        {},
    ),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", NUMERICAL)
def test_get_numerical_jacobian(name):
    func, build, options = NUMERICAL[name]

    ours = gradbot.get_numerical_jacobian(func, build(), **options)

    same(ours, torchs.get_numerical_jacobian(func, build(), **options))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_get_numerical_jacobian_by_a_target_that_is_no_input():
    target, x = checked(3), torch.ones(3, dtype=torch.float64)

    def func(xs):
        return xs[0] * target**2

    ours = gradbot.get_numerical_jacobian(func, (x,), target=(target,))

    same(ours, torchs.get_numerical_jacobian(func, (x,), target=(target,)))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_get_analytical_jacobian(dtype):
    x, y = checked(2, 3, dtype=dtype), checked(3, dtype=dtype)
    output = (x * y).abs().sum(1)

    ours = gradbot.get_analytical_jacobian((x, y), output)
    theirs = torchs.get_analytical_jacobian((x, y), output)

    same(ours[0], theirs[0])
    assert ours[1:] == theirs[1:] == (True, True, True)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_get_analytical_jacobian_tells_a_backward_that_does_not_repeat_itself():
    x = checked(3)
    output = x * 1
    output.register_hook(lambda g: g + 1e-6 * torch.rand(3, dtype=torch.float64))

    assert gradbot.get_analytical_jacobian((x,), output)[1] is False
    assert gradbot.get_analytical_jacobian((x,), output, nondet_tol=1e-3)[1] is True


@pytest.mark.parametrize("forward", [False, True])
def test_get_numerical_jacobian_wrt_specific_input(forward):
    inputs = (checked(2), checked(2))
    outputs = (inputs[0] * inputs[1], inputs[1].sum())

    def func(x, y):
        return x * y, y.sum()

    ours = gradbot.get_numerical_jacobian_wrt_specific_input(func, 1, inputs, outputs, 1e-6, is_forward_ad=forward)

    same(ours, torchs.get_numerical_jacobian_wrt_specific_input(func, 1, inputs, outputs, 1e-6, is_forward_ad=forward))


def test_get_numerical_jacobian_wrt_specific_input_needs_one_that_requires_grad():
    x = torch.ones(2, dtype=torch.float64)

    with pytest.raises(AssertionError, match="Expected input to have requires_grad=True"):
        gradbot.get_numerical_jacobian_wrt_specific_input(torch.sin, 0, (x,), (x,), 1e-6)


CALLS = {
    "get_numerical_jacobian": lambda **more: gradbot.get_numerical_jacobian(
        lambda xs: xs[0] * 1, (checked(2),), **more
    ),
    "get_analytical_jacobian": lambda **more: gradbot.get_analytical_jacobian((x := checked(2),), x * 1, **more),
}


@pytest.mark.parametrize("name", CALLS)
def test_they_say_that_they_are_deprecated(name):
    with pytest.warns(FutureWarning, match=f"`{name}` was part of PyTorch's private API") as caught:
        CALLS[name]()

    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", CALLS)
def test_they_no_longer_take_another_grad_out(name):
    with pytest.raises(ValueError, match=r"Expected grad_out to be 1\.0"):
        CALLS[name](grad_out=2.0)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_they_no_longer_take_complex_outputs():
    z = checked(2, dtype=torch.complex128)

    with pytest.raises(ValueError, match="Expected output to be non-complex"):
        gradbot.get_analytical_jacobian((z,), z * 1)
    with pytest.raises(ValueError, match="Expected output to be non-complex"):
        gradbot.get_numerical_jacobian(lambda xs: xs[0] * 1, (z,))
