"""What people report of gradient checkers, each with the verdict that is right."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from engine.bent import DOUBLE, bent, custom, normal

import gradbot
from gradbot.engine import projections
from gradbot.model import Outcome, Severity


def backward(func, *inputs, **options):
    return gradbot.check(
        func, tuple(each.detach().requires_grad_() for each in inputs), checks=["backward"], **options
    ).checks[0]


def values(*numbers):
    return torch.tensor(numbers, dtype=DOUBLE)


def test_relu_of_zeros_is_a_kink():
    result = backward(torch.relu, torch.zeros(2, 3, dtype=DOUBLE))
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "kink")


def test_pooling_ties_is_a_kink():
    result = backward(lambda x: F.max_pool1d(x, 2), values(1, 1, 2, 2, 0, 3)[None])
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "kink")


def test_sorting_with_a_gap_below_the_step_is_no_failure():
    assert backward(lambda x: x.sort().values, values(1, 1 + 5e-7, 2)).outcome in (Outcome.PASSED, Outcome.INCONCLUSIVE)


def test_dropout_passes_when_replayed():
    assert backward(lambda x: F.dropout(x, 0.5), normal(4, 5)).outcome is Outcome.PASSED


def test_a_linear_layer_in_float32_passes():
    assert backward(torch.nn.Linear(5, 3), normal(4, 5).float()).outcome is Outcome.PASSED


def test_a_product_in_bfloat16_is_no_failure():
    result = backward(torch.mm, normal(2, 2).bfloat16(), normal(2, 2, seed=1).bfloat16())
    assert result.outcome in (Outcome.PASSED, Outcome.INCONCLUSIVE)


def test_a_cast_inside_is_precision_at_worst():
    result = backward(lambda x: torch.tanh(x.float()).double(), normal(4))
    assert result.outcome is Outcome.PASSED or result.reason == "precision"


@pytest.mark.parametrize(
    ("func", "point"),
    [
        (lambda x: torch.sin(x) + 1e8, normal(5)),
        (torch.log, values(1e-7, 1e-3, 1.0)),
        (lambda x: x.expand(3, 4).sin(), normal(1, 4)),
    ],
    ids=["a large constant", "a small argument", "an expanded input"],
)
def test_a_step_that_suits_the_point_passes(func, point):
    assert backward(func, point).outcome is Outcome.PASSED


def test_the_edge_of_a_domain_is_said():
    result = backward(torch.acosh, values(0.2, 0.5, 0.9))
    assert result.outcome is Outcome.INCONCLUSIVE or result.outcome is Outcome.PASSED
    edge = backward(torch.sqrt, values(0.0, 1.0))
    assert (edge.outcome, edge.reason) == (Outcome.INCONCLUSIVE, "domain")


def test_a_symmetric_matrix_can_be_projected_for_cholesky():
    raw = normal(4, 4)
    matrix = raw @ raw.t() + torch.eye(4, dtype=DOUBLE)
    assert backward(torch.linalg.cholesky, matrix, projection=projections.spd).outcome is Outcome.PASSED


WRONG = {
    "a forgotten grad_output": custom(
        lambda x: torch.where(x >= 0, x, x / (1 + x * x).sqrt()),
        lambda g, x: torch.where(x >= 0, torch.ones_like(x), (1 + x * x) ** -1.5),
    ),
    "a complex square without conj": lambda x: torch.view_as_real(
        custom(torch.square, lambda g, z: 2 * g * z)(torch.view_as_complex(x))
    ),
    "one wrong entry": bent(torch.sin, lambda g: torch.cat([g[:1] * 1.1, g[1:]])),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_fails(name):
    result = backward(WRONG[name], normal(6, 2))
    assert result.outcome is Outcome.FAILED
    assert any(each.severity is Severity.ERROR for each in result.findings)


def test_an_error_inside_the_tolerances_is_shown():
    result = backward(bent(torch.sin, lambda g: 1.0009 * g), normal(5))
    assert result.outcome is Outcome.PASSED
    assert [each.kind for each in result.findings] == ["small_mismatch"]


def test_none_for_a_differentiable_input_is_wrong():
    result = backward(custom(lambda x, y: x * y, lambda g, x, y: (g * y, None)), normal(4), normal(4, seed=1))
    assert result.outcome is Outcome.FAILED
    assert result.findings[0].diagnosis.pattern == "none_gradient"


def test_rounding_with_an_identity_backward_is_intentional_when_declared():
    through = custom(torch.round, lambda g, x: g)
    assert backward(through, 3 * normal(5)).reason == "undeclared_surrogate"
    declared = backward(through, 3 * normal(5), expect="straight_through", reason="quantisation")
    assert declared.outcome is Outcome.EXPECTED_FAILURE


def test_wrong_in_float32_only_is_found_in_float32():
    func = custom(torch.sin, lambda g, x: g * x.cos() * (1 if x.dtype is DOUBLE else 2))
    assert backward(func, normal(5)).outcome is Outcome.PASSED
    assert backward(func, normal(5).float()).outcome is Outcome.FAILED


def test_one_backward_in_twenty_that_differs_is_found_with_its_rate():
    calls = []

    def sometimes(grad, x):
        calls.append(1)
        return grad * x.cos() * (1.5 if len(calls) % 20 == 0 else 1.0)

    result = gradbot.check(custom(torch.sin, sometimes), (normal(4).requires_grad_(),), checks=["determinism"])
    determinism = next(each for each in result.checks if each.check == "determinism")
    assert determinism.outcome is Outcome.FAILED
    spread = determinism.findings[0].evidence.spreads[0]
    assert spread.rate_low < 0.05 < spread.rate_high


def test_noise_in_a_backward_is_said_with_its_size():
    noisy = custom(torch.sin, lambda g, x: g * x.cos() * (1 + 1e-10 * torch.rand(())))
    result = gradbot.check(noisy, (normal(4).requires_grad_(),), checks=["determinism"])
    determinism = next(each for each in result.checks if each.check == "determinism")
    assert all(each.evidence.spreads[0].relative < 1e-9 for each in determinism.findings)
