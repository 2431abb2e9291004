"""Functions in float32, float16 and bfloat16 pass where they are right, fail where they are wrong, and are never
failed for rounding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from benchmarks.low_precision import operators
from engine.bent import custom, normal, problem

import gradbot
from gradbot.engine.comparison import Verdict
from gradbot.engine.low_precision import arithmetic, compare
from gradbot.model import Outcome

LOW = (torch.float32, torch.float16, torch.bfloat16)


def low_only(func):
    """A kernel that accepts low precision only."""

    def call(x, *others):
        if x.dtype is torch.float64:
            raise RuntimeError("expected a low precision")
        return func(x, *others)

    return call


def backward(func, *inputs, **options):
    result = gradbot.check(func, tuple(each.requires_grad_() for each in inputs), checks=["backward"], **options)
    return result.checks[0]


SINE = custom(torch.sin, lambda g, x: g * x.cos())
WRONG = custom(torch.sin, lambda g, x: g * x.cos() * 1.5)
WRONG_IN_LOW = custom(torch.sin, lambda g, x: g * x.cos() * (1.0 if x.dtype is torch.float64 else 1.5))
NEGATED = custom(torch.sin, lambda g, x: -g * x.cos())

RIGHT = {
    "linear": lambda x: F.linear(x, torch.ones(3, 5, dtype=x.dtype)),
    "matmul": lambda x: x @ x.t(),
    "log softmax": lambda x: x.log_softmax(-1),
    "layer norm": lambda x: F.layer_norm(x, (5,)),
    "relu": torch.relu,
    "mean of squares": lambda x: x.square().mean(),
    "sine": SINE,
    "float32 inside": lambda x: torch.tanh(x.float()).to(x.dtype),
    "autocast": lambda x: torch.autocast("cpu", torch.bfloat16).__call__(lambda y: y @ y.t())(x),
}


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_is_never_failed(name, dtype):
    assert backward(RIGHT[name], normal(4, 5).to(dtype)).outcome in (Outcome.PASSED, Outcome.INCONCLUSIVE)


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("name", ["linear", "matmul", "log softmax", "sine"])
def test_an_ordinary_function_passes(name, dtype):
    assert backward(RIGHT[name], normal(4, 5).to(dtype)).outcome is Outcome.PASSED


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_what_is_wrong_in_every_dtype_is_said_as_such(dtype):
    result = backward(WRONG, normal(4, 5).to(dtype))
    assert result.outcome is Outcome.FAILED
    assert result.findings[0].kind == "jacobian_mismatch_backward"


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_what_is_wrong_in_low_precision_only_is_told_apart(dtype):
    result = backward(WRONG_IN_LOW, normal(4, 5).to(dtype))
    assert result.outcome is Outcome.FAILED
    (finding,) = result.findings
    assert finding.rule == "GB107"
    assert finding.diagnosis.pattern == "constant_factor"
    assert finding.evidence.entries


def test_what_is_wrong_in_low_precision_only_passes_in_float64():
    assert backward(WRONG_IN_LOW, normal(4, 5)).outcome is Outcome.PASSED


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_a_kernel_for_low_precision_only_is_probed(dtype):
    assert backward(low_only(SINE), normal(4, 5).to(dtype)).outcome is Outcome.PASSED
    assert backward(low_only(NEGATED), normal(4, 5).to(dtype)).outcome is Outcome.FAILED


def test_a_backward_that_bears_float32_only_is_probed_there():
    def written_to_float32(g, x):
        grad = torch.zeros_like(x, dtype=torch.float32)
        grad[torch.arange(len(x))] = g * x.cos()
        return grad

    func = custom(torch.sin, written_to_float32)
    assert backward(func, normal(4, 5).float()).outcome is Outcome.PASSED
    assert backward(func, normal(4, 5)).outcome is Outcome.ERRORED
    wrong = custom(torch.sin, lambda g, x: -written_to_float32(g, x))
    assert backward(wrong, normal(4, 5).float()).outcome is Outcome.FAILED


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_a_failed_probe_shows_entries_and_names_what_is_wrong(dtype):
    def first_column_doubled(g, x):
        grad = g * x.cos()
        grad[..., 0] *= 2
        return grad

    x = (normal(4, 6).abs() + 0.5).to(dtype)
    (finding,) = backward(low_only(custom(torch.sin, first_column_doubled)), x).findings
    assert (finding.evidence.wrong_entries, finding.evidence.complete) == (4, True)
    assert {entry.input_index[-1] for entry in finding.evidence.entries} == {0}
    assert finding.diagnosis.pattern == "scaled_slices"
    assert finding.diagnosis.parameters["factor"] == pytest.approx(2, rel=0.05)


def test_no_cause_is_named_where_noise_would_explain_any():
    one_entry = custom(torch.sin, lambda g, x: (g * x.cos()).index_fill(-1, torch.tensor(0), 0.3))
    (finding,) = backward(low_only(one_entry), (normal(4, 6).abs() + 0.5).bfloat16()).findings
    assert finding.diagnosis is None or finding.diagnosis.pattern != "constant_factor"


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_a_reference_in_float64_decides_for_such_a_kernel(dtype):
    right = backward(low_only(SINE), normal(4, 5).to(dtype), reference=torch.sin)
    wrong = backward(low_only(WRONG), normal(4, 5).to(dtype), reference=torch.sin)
    assert (right.outcome, right.evidence.method) == (Outcome.PASSED, "float64 comparison")
    assert wrong.outcome is Outcome.FAILED
    assert wrong.findings[0].kind == "jacobian_mismatch_backward"


def test_a_module_in_float32_is_checked_as_it_is():
    assert backward(torch.nn.Linear(5, 3), normal(4, 5).float()).outcome is Outcome.PASSED


def test_a_cast_to_float32_inside_is_no_wrong_gradient():
    result = backward(lambda x: torch.tanh(x.float()).double(), normal(4, 5))
    assert result.outcome in (Outcome.PASSED, Outcome.INCONCLUSIVE)
    assert backward(custom(lambda x: torch.tanh(x.float()).double(), lambda g, x: -g), normal(4, 5)).outcome in (
        Outcome.FAILED,
        Outcome.INCONCLUSIVE,
    )


def test_mixed_dtypes_are_checked_together():
    def mixed(x, y):
        return (x.float() @ y).to(x.dtype)

    assert backward(mixed, normal(4, 5).half(), normal(5, 2).float()).outcome is not Outcome.FAILED


def test_noise_that_hides_the_derivative_is_inconclusive():
    def drowned(x):
        return x.sin() + 1e6

    result = backward(low_only(drowned), normal(4, 5).float())
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "precision")


@pytest.mark.parametrize("seed", range(5))
def test_a_tangent_near_its_pole_is_not_failed(seed):
    near = torch.tensor([1.5, -1.55, 0.3, 1.56]).half()
    assert compare(problem(torch.tan, near), seed=seed).verdict is not Verdict.DIFFER


def test_complex_numbers_of_low_precision_are_checked_too():
    points = torch.view_as_complex(normal(4, 2)).to(torch.complex64)
    assert backward(lambda z: z.exp() * z.conj(), points).outcome is Outcome.PASSED
    assert backward(custom(torch.square, lambda g, z: 2 * g * z), points).outcome is Outcome.FAILED


def test_arithmetic_is_read_from_the_values():
    assert arithmetic(problem(torch.sin, normal(4))) is torch.float64
    assert arithmetic(problem(lambda x: torch.sin(x.float()).double(), normal(4))) is torch.float32
    assert arithmetic(problem(torch.sign, normal(4))) is torch.float64
    assert arithmetic(problem(torch.round, 40 * normal(9))) is torch.float64
    assert arithmetic(problem(torch.sin, normal(4).half())) is torch.float16


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["tan", "sort", "msort"])
def test_a_few_elements_at_poles_or_about_to_change_places_are_not_held_against_the_rest(name, dtype, seed):
    op = next(each for each in operators(dtype) if each.name == name)
    torch.manual_seed(seed)
    x = next(iter(op.sample_inputs("cpu", dtype, requires_grad=True))).input
    func = {"tan": torch.tan, "sort": lambda x: x.sort().values, "msort": torch.msort}[name]
    assert compare(problem(func, x), seed=seed).verdict is not Verdict.DIFFER


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("factor", [-1.0, 0.0, 1.5, 1000.0])
def test_a_wrong_factor_shows_in_single_elements(factor, dtype):
    wrong = custom(torch.sin, lambda g, x: g * factor * x.cos())
    assert compare(problem(wrong, normal(40, 40).to(dtype))).verdict is Verdict.DIFFER


def test_a_gradient_of_zeros_that_a_rounding_brings_to_life_is_no_error_of_ours():
    jumping = custom(lambda x: x * 0, lambda g, x: g * torch.where(x == x.clone().bfloat16(), 0.0, 1e-30).to(g))
    x = normal(4).bfloat16().float()
    assert compare(problem(jumping, x)).verdict is not Verdict.DIFFER
