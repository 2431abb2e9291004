"""Every exception carries what was found as data."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from gradbot import GradcheckError, gradcheck, gradgradcheck
from gradbot.rules import RULES


class WrongEntry(Function):
    """sin, whose gradient of the second element is doubled."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        grad = g * x.cos()
        grad.view(-1)[1] *= 2
        return grad


def checked(*shape, dtype=torch.float64):
    return (
        torch.linspace(0.1, 1.0, torch.Size(shape).numel(), dtype=torch.float64)
        .reshape(shape)
        .to(dtype)
        .requires_grad_()
    )


def findings_of(func, *inputs, check=gradcheck, **options):
    with pytest.raises(Exception) as caught:
        check(func, inputs, **options)
    return caught.value.findings


def test_a_mismatch_names_its_place_and_the_worst_entries():
    (finding,) = findings_of(lambda y, x: (y * 1, WrongEntry.apply(x)), checked(2), checked(2, 2))

    assert (finding.kind, finding.output, finding.input) == ("jacobian_mismatch_backward", 1, 1)
    assert finding.rule == RULES["jacobian_mismatch_backward"].id
    (entry,) = finding.evidence.entries
    assert (entry.output_index, entry.input_index) == ((0, 1), (0, 1))
    assert entry.analytical == pytest.approx(2 * entry.numerical, rel=1e-6)
    assert entry.error > entry.tolerance
    assert (finding.evidence.wrong_entries, finding.evidence.checked_entries) == (1, 16)


def test_entries_of_complex_tensors_name_the_part():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, z):
            return 2 * z

        @staticmethod
        def backward(ctx, g):
            return torch.complex(2 * g.real, 3 * g.imag)

    (finding,) = findings_of(Wrong.apply, checked(2, dtype=torch.complex128))

    assert {(each.output_index, each.input_index) for each in finding.evidence.entries} == {
        ((0, 1), (0, 1)),
        ((1, 1), (1, 1)),
    }


def test_entries_are_few_however_many_are_wrong():
    (finding,) = findings_of(lambda x: x * x.detach(), checked(30))

    assert len(finding.evidence.entries) == 8
    assert finding.evidence.wrong_entries == 30


def test_nondeterminism_has_a_size():
    def func(x):
        y = x * 1
        y.register_hook(lambda g: g + 1e-3 * g * torch.rand((), dtype=torch.float64))
        return y

    (finding,) = findings_of(func, checked(3))

    assert finding.kind == "nondeterministic"
    assert 0 < finding.details["largest"] < 1e-3


def test_what_user_code_raised_passes_unchanged_and_carries_its_kind():
    error = ArithmeticError("of one's own")

    def func(x):
        raise error

    with pytest.raises(ArithmeticError) as caught:
        gradcheck(func, (checked(2),), raise_exception=False)

    assert caught.value is error
    assert caught.value.findings[0].kind == "user_error_in_forward"
    assert caught.value.findings[0].details["message"] == "of one's own"


def test_an_exception_that_takes_no_attributes_passes_all_the_same():
    class Slotted(Exception):
        __slots__ = ()

        def __setattr__(self, name, value):
            if name == "findings":
                raise AttributeError(name)
            super().__setattr__(name, value)

    def func(x):
        raise Slotted

    with pytest.raises(Slotted):
        gradcheck(func, (checked(2),))


def test_once_differentiable_is_named():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return 3 * g * ctx.saved_tensors[0] ** 2

    first, *_ = findings_of(Once.apply, checked(2), check=gradgradcheck)

    assert first.kind == "not_twice_differentiable"


def test_an_error_without_findings_can_still_be_made():
    assert GradcheckError("text").findings == ()
