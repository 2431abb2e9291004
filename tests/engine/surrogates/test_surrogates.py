"""Gradients that differ on purpose are recognised, proposed, declared and checked."""

from __future__ import annotations

import pytest
import torch
from engine.bent import bent, custom, normal, problem

import gradbot
from gradbot.engine.compare import compare_jacobians
from gradbot.engine.surrogates import recognise
from gradbot.model import CheckSettings, Outcome

STRAIGHT_THROUGH = custom(torch.round, lambda g, x: g)
SPIKE = custom(lambda x: (x > 0).to(x), lambda g, x: g / (1 + x.abs()) ** 2)
POINTS = 3 * normal(4, 5)

SURROGATES = {
    "round with identity": (STRAIGHT_THROUGH, "straight_through"),
    "detached rounding": (lambda x: x + (x.round() - x).detach(), "straight_through"),
    "spike": (SPIKE, "surrogate"),
    "sum of signs": (lambda x: custom(torch.sign, lambda g, x: g)(x).sum(), "surrogate"),
    "clamped rounding": (custom(lambda x: x.clamp(-1, 1).round(), lambda g, x: g * (x.abs() < 1)), "surrogate"),
}
NOT_SURROGATES = {
    "a wrong relu": custom(torch.relu, lambda g, x: g),
    "a reversal": custom(lambda x: x.clone(), lambda g, x: -g),
    "a constant with a gradient": custom(lambda x: torch.ones_like(x), lambda g, x: g),
    "a wrong sine": bent(torch.sin, lambda g: 2 * g),
}


def outcome(func, **options):
    result = gradbot.check(func, (POINTS.clone().requires_grad_(),), checks=["backward", "reference"], **options)
    return {each.check: each for each in result.checks}


@pytest.mark.parametrize("name", SURROGATES)
def test_a_flat_forward_with_a_gradient_is_recognised(name):
    func, expect = SURROGATES[name]
    here = problem(func, POINTS)
    found = recognise(here, compare_jacobians(here, settings=CheckSettings()))
    assert found is not None
    assert found.expect == expect


@pytest.mark.parametrize("name", NOT_SURROGATES)
def test_a_forward_that_is_not_flat_is_none(name):
    here = problem(NOT_SURROGATES[name], POINTS)
    assert recognise(here, compare_jacobians(here, settings=CheckSettings())) is None


def test_it_is_recognised_in_float32_and_where_the_output_is_cast_to_it():
    cast = custom(lambda x: (x > 0).float(), lambda g, x: (g / (1 + x.abs()) ** 2).to(x.dtype))
    for points in (POINTS, POINTS.float()):
        (backward,) = gradbot.check(cast, (points.clone().requires_grad_(),), checks=["backward"]).checks[:1]
        assert (backward.outcome, backward.reason) == (Outcome.INCONCLUSIVE, "undeclared_surrogate")


def test_undeclared_it_is_inconclusive_and_the_declaration_is_proposed():
    backward = outcome(STRAIGHT_THROUGH)["backward"]
    assert (backward.outcome, backward.reason) == (Outcome.INCONCLUSIVE, "undeclared_surrogate")
    (finding,) = backward.findings
    assert finding.rule == "GB112"
    assert 'expect = "straight_through"' in finding.details["configuration"]
    assert finding.details["configuration"].startswith("[tool.gradbot.targets.")


def test_declared_it_is_an_expected_failure():
    backward = outcome(STRAIGHT_THROUGH, expect="straight_through", reason="quantisation")["backward"]
    assert backward.outcome is Outcome.EXPECTED_FAILURE


def test_a_constant_factor_stays_wrong_and_proposes_what_would_declare_it():
    backward = outcome(custom(lambda x: x.clone(), lambda g, x: -g))["backward"]
    assert backward.outcome is Outcome.FAILED
    assert 'expect = "reversal"' in backward.findings[0].details["configuration"]


def test_the_gradient_of_the_declared_stand_in_passes():
    results = outcome(SPIKE, surrogate_of=lambda x: x / (1 + x.abs()))
    assert results["reference"].outcome is Outcome.PASSED
    assert results["backward"].outcome is Outcome.EXPECTED_FAILURE


def test_a_gradient_other_than_the_stand_ins_fails():
    results = outcome(SPIKE, surrogate_of=torch.tanh)
    assert results["reference"].outcome is Outcome.FAILED
    assert results["reference"].findings[0].rule == "GB106"


def test_a_declared_surrogate_that_is_the_true_gradient_is_an_unexpected_pass():
    right = custom(torch.sin, lambda g, x: g * x.cos())
    assert outcome(right, expect="surrogate", reason="smooth")["backward"].outcome is Outcome.UNEXPECTED_PASS
