"""What a silently wrong second derivative hides is named with its line."""

from __future__ import annotations

import inspect

import pytest
import torch
from engine.bent import normal
from torch.autograd.function import once_differentiable

import gradbot
from gradbot.engine.double_backward_cause import causes, is_once_differentiable
from gradbot.engine.problem import Problem
from gradbot.messages import headline
from gradbot.model import Outcome


class SavesIntermediate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        growth = x.exp()
        ctx.save_for_backward(x, growth)
        return growth * growth

    @staticmethod
    def backward(ctx, grad):
        _, growth = ctx.saved_tensors
        return 2 * grad * growth * growth


class KeepsTensor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.length = x.norm()
        ctx.save_for_backward(x)
        return x * ctx.length

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.length + x / ctx.length * (grad * x).sum()


class KeepsNumber(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.length = x.norm().item()
        return x * ctx.length

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.length + x / ctx.length * (grad * x).sum()


class WithoutGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.no_grad():
            slope = 3 * x * x
        return grad * slope


class NewStyle(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0].cos())

    @staticmethod
    def backward(ctx, grad):
        (slope,) = ctx.saved_tensors
        return grad * slope


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


class Right(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        output = x.exp()
        ctx.save_for_backward(x, output)
        ctx.power = 3.0
        ctx.size = torch.tensor(4.0)
        return output

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[1]


def found(function):
    inputs = (normal(4).requires_grad_(),)
    return causes(Problem(func=lambda x: (function.apply(x.sin()),), inputs=inputs))


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(
    ("function", "kind", "name", "text"),
    [
        (SavesIntermediate, "saved_detached", "growth", "save_for_backward"),
        (KeepsTensor, "ctx_attribute", "ctx.length", "ctx.length = "),
        (KeepsNumber, "ctx_attribute", "ctx.length", "ctx.length = "),
        (WithoutGrad, "no_grad", "torch.no_grad()", "torch.no_grad()"),
        (NewStyle, "saved_detached", "inputs[0].cos()", "save_for_backward"),
    ],
)
def test_the_cause_is_told_from_the_others_with_its_line(function, kind, name, text):
    (cause,) = found(function)
    assert (cause.kind, cause.name) == (kind, name)
    assert cause.location.line == line_of(function, text)
    assert cause.location.path == __file__


@torch.library.custom_op("gradbot_tests::detached_square", mutates_args=())
def detached_square(x: torch.Tensor) -> torch.Tensor:
    return x * x


def keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0].detach())


def square_backward(ctx, grad):
    return 2 * grad * ctx.saved_tensors[0]


detached_square.register_autograd(square_backward, setup_context=keep)


def test_the_cause_in_an_op_is_found_in_what_was_registered():
    inputs = (normal(4).requires_grad_(),)
    (cause,) = causes(Problem(func=lambda x: (detached_square(x),), inputs=inputs))
    assert (cause.kind, cause.name) == ("saved_detached", "inputs[0].detach()")
    assert (cause.location.path, cause.location.line) == (__file__, line_of(keep, "save_for_backward"))


def test_constants_outputs_and_inputs_are_no_cause():
    assert found(Right) == ()


def test_once_differentiable_is_recognised_on_the_class_alone():
    assert is_once_differentiable(Once)
    assert not is_once_differentiable(Right)
    assert [each.kind for each in found(Once)] == ["once_differentiable"]


def result(function):
    checked = gradbot.check(function.apply, (normal(4),), checks=["backward", "double_backward"])
    return next(each for each in checked.checks if each.check == "double_backward")


def test_the_finding_says_what_is_taken_for_a_constant():
    checked = result(SavesIntermediate)
    assert checked.outcome is Outcome.FAILED
    assert "growth" in headline(checked.findings[0])
    assert checked.findings[0].location.line == line_of(SavesIntermediate, "save_for_backward")


def test_once_differentiable_is_unsupported_rather_than_wrong():
    checked = result(Once)
    assert (checked.outcome, checked.reason) == (Outcome.UNSUPPORTED, "once_differentiable")


def test_a_right_second_derivative_passes():
    assert result(Right).outcome is Outcome.PASSED
