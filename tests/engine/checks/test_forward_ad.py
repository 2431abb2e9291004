"""forward_ad: the jvp is held to the derivative, to linearity, and to what left-out tangents mean."""

from __future__ import annotations

import torch
from engine.checks.wrong import assert_fails, assert_passes, real, rule, run

from gradbot.model import Outcome


def sine(jvp: object, **options: bool) -> object:
    return rule(torch.sin, lambda ctx, x, g: g * x.cos(), jvp, **options).apply


def product(jvp: object) -> object:
    return rule(torch.mul, lambda ctx, x, y, g: (g * y, g * x), jvp, materialize=False).apply


def test_a_right_jvp_passes() -> None:
    assert_passes(run("forward_ad", sine(lambda ctx, x, t: t * x.cos()), real(4)))


def test_a_wrong_jvp_beside_a_right_backward_is_found() -> None:
    assert_fails(run("forward_ad", sine(lambda ctx, x, t: t * x.sin()), real(4)), "jacobian_mismatch_forward")


def test_a_jvp_that_ignores_the_size_of_its_tangent_is_not_linear() -> None:
    assert_fails(run("forward_ad", sine(lambda ctx, x, t: t.sign() * x.cos()), real(4)), "nonlinear_jvp")


def test_a_jvp_that_adds_a_constant_is_found() -> None:
    assert run("forward_ad", sine(lambda ctx, x, t: t * x.cos() + 0.1), real(4)).outcome is Outcome.FAILED


def test_a_left_out_tangent_may_be_none() -> None:
    right = product(lambda ctx, x, y, t, u: (0 if t is None else t * y) + (0 if u is None else u * x))
    assert_passes(run("forward_ad", right, real(3), real(3, seed=1)))


def test_a_jvp_that_chokes_on_a_left_out_tangent_is_found() -> None:
    chokes = product(lambda ctx, x, y, t, u: t * y + u * x)
    assert_fails(run("forward_ad", chokes, real(3), real(3, seed=1)), "undefined_tangent")


def test_a_jvp_that_takes_a_left_out_tangent_for_ones_is_found() -> None:
    ones = product(lambda ctx, x, y, t, u: (y if t is None else t * y) + (0 if u is None else u * x))
    assert_fails(run("forward_ad", ones, real(3), real(3, seed=1)), "undefined_tangent")


def test_a_complex_tangent_of_a_real_output_is_found() -> None:
    assert_fails(run("forward_ad", sine(lambda ctx, x, t: torch.complex(t * x.cos(), 0 * t)), real(3)), "grad_dtype")


def test_no_jvp_is_a_missing_capability() -> None:
    result = run("forward_ad", sine(None), real(3))
    assert (result.outcome, result.reason) == (Outcome.UNSUPPORTED, "no_jvp")


def test_a_jvp_that_raises_is_an_error_of_user_code() -> None:
    def refuse(ctx: object, x: object, t: object) -> None:
        raise KeyError("lost")

    result = run("forward_ad", sine(refuse), real(3))
    assert (result.outcome, result.findings[0].kind) == (Outcome.ERRORED, "user_error_in_jvp")


def test_complex_functions_pass() -> None:
    z = torch.complex(real(3), real(3, seed=1)).detach().requires_grad_()
    assert_passes(run("forward_ad", lambda t: t.conj() * t.exp(), z))


def test_a_kink_is_inconclusive() -> None:
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    assert run("forward_ad", torch.relu, x).outcome is Outcome.INCONCLUSIVE
