"""The texts that suites match with regular expressions are torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from gradbot import GradcheckError, gradcheck, gradgradcheck

MODES = pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])


def real(*shape):
    return torch.linspace(0.2, 1.1, max(1, int(torch.Size(shape).numel())), dtype=torch.float64).reshape(shape)


def checked(*shape):
    return real(*shape).requires_grad_()


def shifted(tensor, amount):
    result = tensor.clone()
    result.register_hook(lambda g: g + amount)
    return result


class Refusing(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        if g is None:
            raise RuntimeError("no grad")
        return 2 * g


class WrongJvp(Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g

    @staticmethod
    def jvp(ctx, t):
        return 3 * t


class WrongBackward(WrongJvp):
    @staticmethod
    def backward(ctx, g):
        return 3 * g


class ComplexJvp(WrongJvp):
    @staticmethod
    def jvp(ctx, t):
        return torch.complex(2 * t, 0 * t)


class Random(Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g * (1 + 1e-9 * torch.rand((), dtype=torch.float64))


class Itemized(Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g + 0 * g.sum().item()

    @staticmethod
    def jvp(ctx, t):
        return 2 * t + 0 * t.sum().item()


class OnesForUndefined(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_forward(x, y)
        ctx.set_materialize_grads(False)
        return x * y

    @staticmethod
    def jvp(ctx, s, t):
        x, y = ctx.saved_tensors
        return (y if s is None else s * y) + (x if t is None else t * x)


SPARSE = torch.eye(2, dtype=torch.float64).to_sparse()
REAL = (checked(3),)
COMPLEX = (torch.complex(real(3), 1 - real(3)).requires_grad_(),)

CASES = {
    "mismatch": (
        lambda x: shifted(x, 0.1),
        REAL,
        {},
        r"^Jacobian mismatch for output 0 with respect to input 0,\nnumerical:tensor",
    ),
    "mismatch of a second input": (
        lambda x, y: x + shifted(y, 0.1),
        (*REAL, checked(3)),
        {},
        r"Jacobian mismatch for output 0 with respect to input 1",
    ),
    "mismatch of complex outputs": (
        lambda x: torch.complex(WrongBackward.apply(x), x),
        REAL,
        {},
        "While considering the real part of complex outputs only, Jacobian mismatch for output 0",
    ),
    "mismatch of imaginary outputs": (
        lambda x: shifted(torch.complex(x, x), 0.1j),
        REAL,
        {},
        "While considering the imaginary part of complex outputs only, Jacobian mismatch for output 0",
    ),
    "mismatch of forward mode": (
        WrongJvp.apply,
        REAL,
        {"check_forward_ad": True},
        "Jacobian computed with forward mode mismatch for output 0 with respect to input 0",
    ),
    "mismatch of forward mode with complex inputs": (
        WrongJvp.apply,
        COMPLEX,
        {"check_forward_ad": True},
        "While considering the imaginary part of complex inputs only, Jacobian computed with forward mode mismatch",
    ),
    "dtype of forward mode": (
        ComplexJvp.apply,
        REAL,
        {"check_forward_ad": True, "check_grad_dtypes": True},
        "Forward AD gradient has dtype mismatch",
    ),
    "not reentrant": (
        Random.apply,
        REAL,
        {},
        r"Backward is not reentrant, i\.e\., running backward with same input and grad_output multiple times gives",
    ),
    "zeros ignored": (lambda x: shifted(x, 1e-7), REAL, {}, "backward not multiplied by grad_output"),
    "layout": (
        lambda w: torch.nn.functional.embedding(torch.tensor([0, 1]), w, sparse=True),
        (checked(2, 2),),
        {},
        r"grad is incorrect layout \(torch.sparse_coo is not torch.strided\)",
    ),
    "batched": (
        Itemized.apply,
        REAL,
        {"check_batched_grad": True},
        "gradcheck or gradgradcheck failed while testing batched gradient computation",
    ),
    "batched, with the reason": (
        Itemized.apply,
        REAL,
        {"check_batched_grad": True},
        "While computing batched gradients, got: ",
    ),
    "batched forward": (
        Itemized.apply,
        REAL,
        {"check_forward_ad": True, "check_batched_forward_grad": True},
        "gradcheck failed while testing batched gradient computation with forward-mode AD",
    ),
    "undefined": (Refusing.apply, REAL, {}, "Expected backward function to handle undefined output grads"),
    "undefined tangent": (
        OnesForUndefined.apply,
        (checked(3), checked(3)),
        {"check_forward_ad": True, "check_backward_ad": False},
        "Mismatch in tangent values for output with index: 0",
    ),
    "no differentiable output": (
        lambda x: x.detach() * 2,
        REAL,
        {},
        "Numerical gradient for function expected to be zero",
    ),
}


@MODES
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:Backwards compatibility")
def test_what_is_wrong_is_told_in_torchs_words(name, fast):
    func, inputs, options, phrase = CASES[name]

    with pytest.raises(GradcheckError, match=phrase):
        gradcheck(func, inputs, fast_mode=fast, **options)


REFUSALS = {
    "nothing to check": (
        torch.sin,
        (real(3),),
        {},
        ValueError,
        "gradcheck expects at least one input tensor to require",
    ),
    "stride of zero": (
        torch.sin,
        (checked(1).expand(3),),
        {},
        RuntimeError,
        "The 0th input has a dimension with stride 0",
    ),
    "sparse output": (
        lambda x: x.to_sparse(),
        (checked(3),),
        {},
        ValueError,
        "Sparse output is not supported at gradcheck yet",
    ),
    "shape that depends on values": (
        lambda x: x * 1 if x[0] > 0.2 else (x * 1).view(1, -1),
        (checked(3),),
        {},
        AssertionError,
        "Expected `func` to return outputs with the same shape when inputs are perturbed",
    ),
    "dtype that depends on values": (
        lambda x: x * 1 if x[0] > 0.2 else (x * 1).float(),
        (checked(3),),
        {},
        AssertionError,
        "Expected `func` to return outputs with the same dtype when inputs are perturbed",
    ),
    "neither mode": (
        torch.sin,
        (checked(3),),
        {"check_backward_ad": False},
        AssertionError,
        "Expected at least one of check_forward_ad or check_backward_ad to be True",
    ),
    "batched without backward": (
        torch.sin,
        (checked(3),),
        {"check_forward_ad": True, "check_backward_ad": False, "check_batched_grad": True},
        AssertionError,
        "Setting check_batched_grad=True requires check_backward_ad to be True",
    ),
}


@MODES
@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_checked_is_refused_in_torchs_words_whatever_raise_exception_says(name, fast):
    func, inputs, options, error, phrase = REFUSALS[name]

    with pytest.raises(error, match=phrase) as caught:
        gradcheck(func, inputs, fast_mode=fast, raise_exception=False, **options)

    assert not isinstance(caught.value, GradcheckError)


def test_fast_mode_tells_the_largest_difference():
    with pytest.raises(GradcheckError, match=r"The max per-element difference \(slow mode\) is: 0\.1"):
        gradcheck(lambda x: shifted(x, 0.1), (checked(3),), fast_mode=True)


def test_undefined_grads_that_are_not_handled_are_warned_of():
    with pytest.warns(UserWarning, match="New undefined gradient support checking feature"):
        assert gradcheck(Refusing.apply, REAL, raise_exception=False) is False


def test_low_precision_is_warned_of_at_the_callers_line():
    x = torch.tensor([1.0, 0.5], requires_grad=True)

    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double precision") as caught:
        gradcheck(lambda x: 2 * x, (x,), atol=0.1)

    assert {each.filename for each in caught} == {__file__}


def test_gradgradcheck_refuses_undefined_grads_without_reverse_over_reverse():
    with pytest.raises(
        AssertionError, match="Setting check_undefined_grad=True requires check_rev_over_rev to be True"
    ):
        gradgradcheck(torch.sin, REAL, check_fwd_over_rev=True, check_rev_over_rev=False)
