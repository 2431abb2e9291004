"""The cause of a wrong Jacobian is named from its error, with what it leaves unexplained; or nothing is said."""

from __future__ import annotations

import pytest
import torch
from engine.bent import DOUBLE, bent, custom, normal, problem
from hypothesis import given, settings
from hypothesis import strategies as st

import gradbot
from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.diagnose import diagnose
from gradbot.engine.localise import localise
from gradbot.engine.problem import Problem
from gradbot.messages import PATTERNS, diagnosis_text
from gradbot.model import CheckSettings, Mode

EXACT = CheckSettings(mode=Mode.EXACT)


def cause(here: Problem, *, pair=(0, 0), **complex_sides):
    comparison = compare_jacobians(here, settings=EXACT)
    assert comparison.verdict is Verdict.DIFFER
    located = next(each for each in localise(here, comparison, EXACT) if (each.output, each.input) == pair)
    return diagnose(here, comparison, located, **complex_sides)


def on_output(func, bend):
    identity = custom(lambda y: y.view_as(y), lambda grad, y: bend(grad))
    return lambda *inputs: identity(func(*inputs))


def columns(grad, chosen, change):
    changed = grad.clone()
    changed[..., chosen] = change(changed[..., chosen])
    return changed


BENDS = {
    "sign": (torch.neg, {}),
    "constant_factor": (lambda g: 0.5 * g, {"factor": pytest.approx(0.5, rel=1e-6)}),
    "transpose": (lambda g: g.t(), {"side": "input"}),
    "permutation": (lambda g: g.flip(0), {"how": "flipped", "dim": 0}),
    "swapped_rows": (lambda g: g[[0, 3, 2, 1, 4, 5]], {"first": 1, "second": 3}),
    "copied_slice": (lambda g: torch.cat([g[:, :-1], g[:, -2:-1]], 1), {"first": 5, "second": 4}),
    "zero_rows": (lambda g: columns(g, 2, torch.zeros_like), {"rows": "2", "dim": 1}),
    "scaled_slices": (lambda g: columns(g, -1, lambda c: 3 * c), {"rows": "5"}),
    "beyond_index": (lambda g: columns(g, slice(3, None), lambda c: c.sum() + c), {"index": 3}),
    "tile_multiples": (lambda g: columns(g, slice(None, None, 2), lambda c: c.cumsum(0)), {"tile": 2}),
    "mean_subtracted": (lambda g: g - g.mean(), {"dim": "all"}),
    "detached_branch": (torch.zeros_like, {}),
    "dtype_round_trip": (lambda g: g.bfloat16().double(), {"dtype": "bfloat16"}),
}


@pytest.mark.parametrize("name", BENDS)
def test_a_bent_gradient_is_named_with_its_place(name):
    bend, parameters = BENDS[name]
    found = cause(problem(bent(torch.sin, bend), normal(6, 6)))
    assert found.pattern == name
    assert {key: found.parameters[key] for key in parameters} == parameters
    assert found.residual <= found.threshold


OUTPUT_BENDS = {
    "grad_output_ignored": torch.ones_like,
    "grad_output_first_element": lambda g: g.reshape(-1)[0].expand_as(g).clone(),
    "grad_output_reduced": lambda g: g.sum().expand_as(g).clone(),
    "transpose": lambda g: g.t(),
}


@pytest.mark.parametrize("name", OUTPUT_BENDS)
def test_a_misused_grad_output_is_named(name):
    assert cause(problem(on_output(torch.exp, OUTPUT_BENDS[name]), normal(4, 4))).pattern == name


def test_an_omitted_grad_output_is_named():
    isru = custom(lambda x: x / (1 + x * x).sqrt(), lambda g, x: (1 + x * x) ** -1.5)
    assert cause(problem(isru, normal(5))).pattern == "grad_output_ignored"


def test_none_for_an_input_that_matters_is_named():
    multiply = custom(lambda x, y: x * y, lambda g, x, y: (g * y, None))
    assert cause(problem(multiply, normal(5), normal(5, seed=1)), pair=(0, 1)).pattern == "none_gradient"


def test_a_missing_conjugation_is_named():
    square = custom(torch.square, lambda g, z: g * 2 * z)
    here = problem(lambda pairs: torch.view_as_real(square(torch.view_as_complex(pairs))), normal(4, 2))
    assert cause(here, complex_inputs=(True,), complex_outputs=(True,)).pattern == "missing_conj"


def test_a_real_pair_is_no_missing_conjugation():
    here = problem(bent(torch.sin, lambda g: columns(g, 1, torch.neg)), normal(4, 2))
    assert cause(here).pattern == "scaled_slices"


def test_the_cotangent_of_another_output_is_named():
    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin(), x.exp()

        @staticmethod
        def backward(ctx, first, second):
            (x,) = ctx.saved_tensors
            return second * x.cos() + first * x.exp()

    found = cause(problem(Pair.apply, normal(4)))
    assert (found.pattern, found.parameters["other"]) == ("other_cotangent", 1)


@pytest.mark.parametrize(
    ("bend", "condition"),
    [
        (lambda g, x: g * (x >= 0), "x < 0"),
        (lambda g, x: torch.where(x > 0, 1.5 * g * x, g), "x > 0"),
    ],
)
def test_a_condition_on_the_input_is_named(bend, condition):
    here = problem(custom(torch.sin, lambda g, x: bend(g * x.cos(), x)), normal(6, 5))
    found = cause(here)
    assert (found.pattern, found.parameters["condition"]) == ("only_where", condition)


def test_gradients_that_are_not_numbers_are_said_with_what_makes_them_so():
    points = normal(6, 5)
    points[0, 1] = points[2, 2] = points[5, 4] = 0.0
    here = problem(custom(torch.square, lambda g, x: 2 * g * x * x / x), points)
    found = cause(here)
    assert (found.pattern, found.parameters["what"], found.parameters["where"]) == ("not_finite", "NaN", "x = 0")
    assert "?" not in diagnosis_text(found)


@pytest.mark.parametrize(
    "func",
    [
        lambda x: x.sin() + (x * x).detach(),
        lambda x: x * x.data.cos(),
        lambda x: x / x.detach().norm(),
    ],
)
def test_a_detached_branch_is_named_with_its_line(func):
    found = cause(problem(func, normal(4, 3)))
    assert found.pattern == "detached_at"
    assert found.parameters["place"] == f"test_diagnose.py:{func.__code__.co_firstlineno}"
    assert found.residual <= found.threshold


def test_a_branch_computed_without_grad_is_named_with_its_line():
    def func(x):
        with torch.no_grad():
            weight = x.exp()
        return x * weight

    found = cause(problem(func, normal(4, 3)))
    assert found.parameters["place"] == f"test_diagnose.py:{func.__code__.co_firstlineno + 2}"


def test_what_a_custom_forward_detaches_is_no_detached_branch():
    wrong = custom(lambda x: x.detach().sin(), lambda g, x: 2 * g * x.cos())
    assert cause(problem(wrong, normal(4, 3))).pattern == "constant_factor"


def test_a_factor_that_the_rule_forgot_is_named():
    cube = custom(lambda x: x**3, lambda g, x: 3 * g * x)
    found = cause(problem(cube, normal(8)))
    assert (found.pattern, found.parameters["quantity"]) == ("missing_factor", "x")


def test_a_jacobian_where_its_transpose_is_due_is_named():
    running = custom(lambda x: x.cumsum(0), lambda g, x: g.cumsum(0))
    assert cause(problem(running, normal(6))).pattern == "jacobian_transposed"
    product = custom(lambda x, w: x @ w, lambda g, x, w: (g @ w, x.t() @ g))
    assert cause(problem(product, normal(4, 4), normal(4, 4, seed=1))).pattern == "jacobian_transposed"


@pytest.mark.parametrize(
    ("gradient", "pattern", "quantity"),
    [
        (lambda g, x: g * 2 * x, "missing_term", "1"),
        (lambda g, x: g, "missing_term", "x"),
        (lambda g, x: g * (1 + 4 * x), "doubled_term", "x"),
        (lambda g, x: g * (1 + 2 * x) + x, "doubled_term", "x"),
    ],
)
def test_a_term_that_is_missing_or_one_too_many_is_named(gradient, pattern, quantity):
    found = cause(problem(custom(lambda x: x * x + x, gradient), normal(6)))
    assert (found.pattern, found.parameters["quantity"]) == (pattern, quantity)


def test_a_missing_term_is_named():
    softmax = custom(lambda x: x.softmax(-1), lambda g, x: g * x.softmax(-1))
    found = cause(problem(softmax, normal(5)))
    assert found.pattern in ("missing_term", "doubled_term")
    assert found.parameters["quantity"] == "y yᵀ"


def test_two_faults_are_not_explained_by_one_pattern():
    found = cause(problem(bent(torch.sin, lambda g: columns(2 * g, 1, torch.zeros_like)), normal(6, 5)))
    assert (found.pattern, found.parameters["first"]) == ("compound", "constant_factor")
    assert found.residual > found.threshold


def test_two_faults_that_cross_are_placed_both():
    def bend(grad):
        changed = columns(grad, 1, torch.zeros_like)
        changed[2] = 3 * changed[2]
        return changed

    found = cause(problem(bent(torch.sin, bend), normal(6, 5)))
    assert found.pattern == "compound"
    assert "index 2 of dim 0" in found.parameters["places"]
    assert "index 1 of dim 1" in found.parameters["places"]


def test_what_has_no_pattern_is_not_named():
    noise = 1 + 0.3 * normal(6, 5, seed=7)
    found = cause(problem(bent(torch.sin, lambda g: g * noise), normal(6, 5)))
    assert found is None or found.pattern == "compound"


@pytest.mark.parametrize("name", ["sign", "transpose", "constant_factor", "permutation", "zero_rows"])
def test_a_jacobian_that_is_not_formed_is_diagnosed_from_samples(name):
    bend = {
        "sign": torch.neg,
        "constant_factor": lambda g: 3 * g,
        "transpose": lambda g: g.t(),
        "permutation": lambda g: g.roll(1, 0),
        "zero_rows": lambda g: columns(g, 7, torch.zeros_like),
    }[name]
    weight = normal(64, 64) / 8
    here = problem(bent(lambda x: torch.tanh(x @ weight), bend), normal(64, 64, seed=1))
    seen = Comparison(verdict=Verdict.DIFFER, method="probe", wrong_pairs=((0, 0),))
    located = localise(here, seen, EXACT)[0]
    assert diagnose(here, seen, located).pattern == name


@settings(max_examples=25, deadline=None)
@given(st.floats(-5, 5).filter(lambda c: abs(c - 1) > 0.01 and abs(c) > 0.01))
def test_any_constant_factor_is_measured(factor):
    found = cause(problem(bent(torch.exp, lambda g: factor * g), normal(4, 3)))
    assert found.pattern in ("constant_factor", "sign")
    assert found.parameters["factor"] == pytest.approx(factor, rel=1e-5)


def test_every_pattern_has_words():
    for name in (*BENDS, *OUTPUT_BENDS):
        assert "?" not in PATTERNS[name]
    found = cause(problem(bent(torch.sin, lambda g: columns(g, -1, lambda c: 3 * c)), normal(4, 6)))
    assert "?" not in diagnosis_text(found)
    assert found.parameters["rows"] == "5"
    assert normal(1).dtype is DOUBLE


def test_ignored_strides_of_grad_output_are_named():
    def reads_memory(grad, x):
        in_order = grad.as_strided(grad.shape, torch.empty(grad.shape).stride())
        return in_order * x.cos()

    result = gradbot.check(custom(torch.sin, reads_memory), (normal(3, 4),), checks=["backward", "grad_outputs"])
    (check,) = [each for each in result.checks if each.check == "grad_outputs"]
    assert "grad_output_strides" in [each.diagnosis.pattern for each in check.findings if each.diagnosis]
