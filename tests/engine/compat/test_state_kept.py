"""Whatever happens, inputs and all global state are as they were."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
from torch.autograd import Function

from gradbot import gradcheck, gradgradcheck


class Doubled(Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g

    @staticmethod
    def jvp(ctx, t):
        return 2 * t


class Wrong(Doubled):
    @staticmethod
    def backward(ctx, g):
        return 3 * g


def strided():
    return torch.tensor([[0.1, 1 / 3], [2.0, 1e-9]], dtype=torch.float64, requires_grad=True)


def sparse(layout):
    dense = torch.tensor([[0.1, 0.0], [0.0, 1 / 3]], dtype=torch.float64)
    return lambda: dense.to_sparse(layout=layout).requires_grad_()


def every_third():
    return torch.rand(9, dtype=torch.float64)[::3].detach().requires_grad_()


def complex_conjugate():
    return torch.rand(3, dtype=torch.complex128).conj().detach().requires_grad_()


INPUTS = {
    "strided": strided,
    "every third element": every_third,
    "complex conjugate view": complex_conjugate,
    "COO": sparse(torch.sparse_coo),
    "CSR": sparse(torch.sparse_csr),
    "CSC": sparse(torch.sparse_csc),
}


def snapshot():
    return (
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        list(warnings.filters),
    )


def bits(tensor):
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    return torch.view_as_real(dense.resolve_conj()).tolist() if dense.is_complex() else dense.tolist()


def disturbing(x):
    """Right, but leaves every global thing that it can reach in another state."""
    torch.rand(1), random.random(), np.random.rand()
    torch.set_default_dtype(torch.float16)
    torch.set_num_threads(3)
    warnings.simplefilter("error")
    return x.to_dense() * 2 if x.layout is not torch.strided else x * 2


class Bomb:
    """Raises at its n-th call."""

    def __init__(self, fuse, error):
        self.fuse, self.error, self.calls = fuse, error, 0

    def __call__(self, x):
        self.calls += 1
        if self.calls == self.fuse:
            raise self.error("boom")
        return x.to_dense().exp() if x.layout is not torch.strided else x.exp()


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("fast", [False, True])
def test_after_a_pass(name, fast):
    x = INPUTS[name]()
    before, values = snapshot(), bits(x)

    gradcheck(disturbing, (x,), masked=True, fast_mode=fast)

    assert snapshot() == before
    assert bits(x) == values
    assert x.grad is None


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_after_a_failure(check):
    x = strided()
    before, values = snapshot(), bits(x)

    assert check(lambda x: Wrong.apply(disturbing(x)).sin() * torch.rand(()), (x,), raise_exception=False) is False

    assert snapshot() == before
    assert bits(x) == values


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("error", [RuntimeError, ValueError, KeyboardInterrupt, SystemExit])
def test_after_an_exception_at_any_call(name, error):
    x = INPUTS[name]()
    before, values = snapshot(), bits(x)
    bomb = Bomb(10**9, error)
    gradcheck(bomb, (x,), masked=True)

    for fuse in range(1, bomb.calls + 1):
        with pytest.raises(error, match="boom"):
            gradcheck(Bomb(fuse, error), (x,), masked=True)
        assert bits(x) == values

    assert snapshot() == before


def test_after_an_interrupted_fast_check():
    x = torch.rand(60, dtype=torch.float64, requires_grad=True)
    values = bits(x)

    bomb = Bomb(10**9, KeyboardInterrupt)
    gradcheck(bomb, (x,), fast_mode=True)

    for fuse in range(1, bomb.calls + 1):
        with pytest.raises(KeyboardInterrupt):
            gradcheck(Bomb(fuse, KeyboardInterrupt), (x,), fast_mode=True)
        assert bits(x) == values


def test_a_grad_that_was_there_stays():
    x = strided()
    x.grad = torch.ones_like(x)

    def func(x):
        (x * x).sum().backward()
        return x * 2

    gradcheck(func, (x,))

    assert x.grad.tolist() == [[1, 1], [1, 1]]


def test_an_exception_in_the_backward_leaves_no_trace():
    x, y = strided(), strided()
    values = bits(x)

    def explode(g):
        raise ArithmeticError("boom")

    def func(x, y):
        z = x * y
        z.register_hook(explode)
        return z

    with pytest.raises(ArithmeticError, match="boom"):
        gradcheck(func, (x, y))

    assert bits(x) == bits(y) == values


def test_grad_mode_off_outside_is_no_hindrance_and_stays_off():
    x = strided()

    with torch.no_grad():
        assert gradcheck(torch.sin, (x,))
        assert not torch.is_grad_enabled()


def test_grad_outputs_that_were_given_stay_as_they_are():
    x, grad = strided(), torch.rand(2, 2, dtype=torch.float64, requires_grad=True)
    values = bits(grad)

    gradgradcheck(torch.sin, (x,), (grad,))

    assert bits(grad) == values
    assert grad.grad is None


def test_another_default_device_is_no_hindrance():
    x = strided()

    with torch.device("meta"):
        assert gradcheck(lambda x: x.sin(), (x,), check_forward_ad=True, check_batched_grad=True)
        assert gradgradcheck(lambda x: x.sin(), (x,), fast_mode=True)
