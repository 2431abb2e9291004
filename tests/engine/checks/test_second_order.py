"""double_backward and forward_over_backward: silent constants are wrong, missing second derivatives are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine.checks.wrong import assert_fails, assert_passes, real, result_of, rule, run
from torch.autograd.function import once_differentiable

from gradbot.engine.api import check
from gradbot.model import Outcome


def cube(backward: Any) -> Any:
    return rule(lambda x: x**3, backward).apply


class CubeOnce(torch.autograd.Function):
    """x ** 3, once differentiable."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * grad


def through_numpy(ctx: Any, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(3 * x.numpy() ** 2 * g.numpy())


def without_grad(ctx: Any, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return 3 * x**2 * g


def test_a_right_rule_passes() -> None:
    assert_passes(run("double_backward", cube(lambda ctx, x, g: 3 * x**2 * g), real(3)))


def test_a_second_derivative_that_detaches_its_point_is_wrong() -> None:
    result = run("double_backward", cube(lambda ctx, x, g: 3 * x.detach() ** 2 * g), real(3))
    assert_fails(result, "jacobian_mismatch_double_backward")


def test_a_second_derivative_that_detaches_grad_output_is_wrong() -> None:
    result = run("double_backward", cube(lambda ctx, x, g: 3 * x**2 * g.detach()), real(3))
    assert_fails(result, "jacobian_mismatch_double_backward")


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (CubeOnce.apply, "once_differentiable"),
        (cube(through_numpy), "numpy_backward"),
        (cube(without_grad), "detached_backward"),
    ],
)
def test_a_backward_that_cannot_be_differentiated_is_unsupported(func: Any, reason: str) -> None:
    case = check(func, (real(3),))
    result = result_of(case, "double_backward")
    assert (result.outcome, result.reason) == (Outcome.UNSUPPORTED, reason)
    # and the case is not called wrong for it
    assert case.outcome is Outcome.PASSED


def test_none_counts_as_zeros_and_keeps_its_place() -> None:
    # the second derivative of x * y by (x, x) and (y, y) is zero, by (x, y) it is not
    silent = rule(torch.mul, lambda ctx, x, y, g: (g * y, (g * x.detach())))
    result = run("double_backward", silent.apply, real(2), real(2, seed=1))
    assert [(each.output, each.input) for each in result.findings] == [(1, 0)]


def test_a_linear_function_has_zero_second_derivatives() -> None:
    assert_passes(run("double_backward", lambda x: 3 * x, real(3)))


def test_the_kink_of_a_gradient_is_inconclusive() -> None:
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    assert run("double_backward", torch.abs, x).outcome is Outcome.INCONCLUSIVE


def test_complex_functions_pass() -> None:
    z = torch.complex(real(3), real(3, seed=1)).detach().requires_grad_()
    assert_passes(run("double_backward", lambda t: t * t.conj() + t**3, z))
    assert_passes(run("forward_over_backward", lambda t: t * t.conj() + t**3, z))


class Twice(torch.autograd.Function):
    """x ** 2 with a jvp that is right and whose own derivative is not."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return Slope.apply(ctx.saved_tensors[0]) * grad

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return 2 * ctx.saved_tensors[0] * tangent


class Slope(torch.autograd.Function):
    """2 x, whose jvp says 3."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return 2 * grad

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return 3 * tangent


def test_forward_over_backward_alone_sees_a_jvp_inside_the_backward() -> None:
    case = check(Twice.apply, (real(3),))
    assert result_of(case, "backward").outcome is Outcome.PASSED
    assert result_of(case, "forward_ad").outcome is Outcome.PASSED
    assert result_of(case, "double_backward").outcome is Outcome.PASSED
    assert_fails(result_of(case, "forward_over_backward"), "jacobian_mismatch_forward_over_backward")


def test_forward_over_backward_of_a_smooth_function_passes() -> None:
    assert_passes(run("forward_over_backward", lambda x: torch.softmax(x, -1), real(2, 3)))


def test_a_missing_first_gradient_spoils_no_second_derivative() -> None:
    # by the gradient of x alone: None is a gradient of zeros, and its derivative is zero
    missing = rule(torch.mul, lambda ctx, x, y, g: (g * y, None))
    assert run("double_backward", missing.apply, real(2), real(2, seed=1)).outcome is Outcome.PASSED
    silent = rule(torch.mul, lambda ctx, x, y, g: (g * y.detach(), None))
    assert_fails(run("double_backward", silent.apply, real(2), real(2, seed=1)), "jacobian_mismatch_double_backward")
