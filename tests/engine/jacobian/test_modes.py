"""Each mode says agree of what is right and differ of what is wrong, whatever the size, by the method it promises."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
import torch
from engine.jacobian.problems import nonlinear, one_entry_wrong, problem, real, scaled
from faults.inject import inject
from faults.kinds import FAULTS

from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.jacobian.gradients import stacked_gradients
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings, Mode

SIZES = ((2, 3), (5, 6), (16, 8), (40, 30))
MODES = tuple(Mode)


def compared(subject: Problem, mode: Mode = Mode.AUTO, **options: object) -> Comparison:
    direction = str(options.pop("direction", "reverse"))
    seed = int(str(options.pop("seed", 0)))
    return compare_jacobians(
        subject,
        direction=direction,
        settings=CheckSettings(mode=mode, **options),
        seed=seed,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("direction", ["reverse", "forward"])
@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("mode", MODES)
def test_right_derivatives_agree(mode: Mode, shape: tuple[int, int], direction: str) -> None:
    subject = problem(lambda x: x.sin().softmax(-1), real(*shape))
    assert compared(subject, mode, direction=direction).verdict is Verdict.AGREE


@pytest.mark.parametrize("direction", ["reverse", "forward"])
@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_factor_differs(mode: Mode, shape: tuple[int, int], direction: str) -> None:
    subject = problem(lambda x: scaled(x.sin(), 1.01), real(*shape))
    comparison = compared(subject, mode, direction=direction)
    assert comparison.verdict is Verdict.DIFFER
    assert comparison.wrong_pairs == ((0, 0),)


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("mode", MODES)
def test_one_wrong_entry_differs(mode: Mode, shape: tuple[int, int]) -> None:
    subject = problem(lambda x: one_entry_wrong(x, 3, 1.1).cos(), real(*shape))
    assert compared(subject, mode).verdict is Verdict.DIFFER


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("mode", MODES)
def test_the_wrong_input_is_named(mode: Mode, shape: tuple[int, int]) -> None:
    subject = problem(lambda a, b: (a * b, a + scaled(b, 2.0)), real(*shape), real(*shape, seed=1))
    assert compared(subject, mode).wrong_pairs == ((1, 1),)


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("mode", MODES)
def test_a_backward_that_is_not_linear_differs(mode: Mode, shape: tuple[int, int]) -> None:
    comparison = compared(problem(nonlinear, real(*shape)), mode)
    assert comparison.verdict is Verdict.DIFFER
    assert not comparison.linear


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("mode", MODES)
def test_an_error_within_the_tolerances_agrees_and_is_shown(mode: Mode, shape: tuple[int, int]) -> None:
    comparison = compared(problem(lambda x: scaled(x.sin(), 1.0009), real(*shape)), mode)
    assert comparison.verdict is Verdict.AGREE
    assert comparison.largest_relative_error == pytest.approx(9e-4, rel=0.01)


@pytest.mark.parametrize("shape", SIZES)
def test_a_tiny_gradient_that_is_dropped_is_shown(shape: tuple[int, int]) -> None:
    comparison = compared(problem(lambda x: 1e-7 * scaled(x.sin(), 0.0), real(*shape)))
    assert comparison.verdict is Verdict.AGREE
    assert comparison.largest_relative_error == pytest.approx(1.0)


@pytest.mark.parametrize("shape", SIZES)
def test_a_small_input_does_not_drown_in_a_large_one(shape: tuple[int, int]) -> None:
    subject = problem(lambda a, b: 1e6 * a + 1e-3 * scaled(b * b, 2.0), real(*shape), real(*shape, seed=1))
    assert compared(subject).wrong_pairs == ((0, 1),)


@pytest.mark.parametrize("mode", MODES)
def test_tolerances_are_obeyed_entry_by_entry(mode: Mode) -> None:
    subject = problem(lambda x: scaled(x, 1.1), real(20, 10))
    assert compared(subject, mode, rtol=0.2, atol=0.0).verdict is Verdict.AGREE
    assert compared(subject, mode, rtol=0.0, atol=0.11).verdict is Verdict.AGREE
    assert compared(subject, mode, rtol=0.0, atol=0.09).verdict is Verdict.DIFFER


@pytest.mark.parametrize("factor", [1.0, 1.0009, 1.002, 1.1])
@pytest.mark.parametrize("shape", [(5, 6), (16, 8)])
def test_the_verdict_does_not_depend_on_the_seed(shape: tuple[int, int], factor: float) -> None:
    subject = problem(lambda x: scaled((x @ x.T).cos(), factor), real(*shape))
    verdicts = {compared(subject, seed=seed).verdict for seed in range(20)}
    assert verdicts == {Verdict.DIFFER if factor > 1.001 else Verdict.AGREE}


def test_methods_are_the_ones_that_the_mode_and_size_ask_for() -> None:
    def right(*shape: int) -> Problem:
        return problem(torch.sin, real(*shape))

    assert compared(right(5, 6)).method == "probe"
    assert compared(right(5, 6), eps=1e-6).method == "dense vmap"
    assert compared(right(2, 1), eps=1e-6).method == "dense"
    assert compared(right(5, 6), Mode.FAST).method == "probe"
    assert compared(right(16, 8)).method == "probe"
    assert compared(right(16, 8), Mode.EXACT).method == "dense vmap"
    assert compared(right(40, 30), Mode.EXACT).method == "structured"


def test_without_structure_exact_goes_through_all_columns_in_chunks() -> None:
    mixing = torch.linspace(-1, 1, 140 * 140, dtype=torch.float64).view(140, 140).sin()
    comparison = compared(problem(lambda x: (mixing @ x).sin(), real(140)), Mode.EXACT)
    assert comparison.method == "dense chunked"
    assert comparison.verdict is Verdict.AGREE


@pytest.mark.parametrize("budget", [1 << 16, 1 << 20])
def test_one_wrong_entry_is_found_in_chunks_of_any_size(budget: int) -> None:
    mixing = torch.linspace(-1, 1, 140 * 140, dtype=torch.float64).view(140, 140).sin()
    subject = problem(lambda x: mixing @ one_entry_wrong(x, 77, 1.1), real(140))
    comparison = compared(subject, Mode.EXACT, memory_bytes=budget)
    assert comparison.verdict is Verdict.DIFFER


@pytest.mark.parametrize("shape", [(3, 2), (16, 8)])
@pytest.mark.parametrize("direction", ["reverse", "forward"])
@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_second_order(shape: tuple[int, int], direction: str, factor: float) -> None:
    first = problem(lambda x: (x * x).sin(), real(*shape))

    def gradient(x: torch.Tensor, cotangent: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            (found,) = torch.autograd.grad((x * x).sin(), x, cotangent, create_graph=True)
        return (scaled(found, factor),)

    subject = Problem(func=gradient, inputs=(*first.inputs, real(*shape, seed=1)), grad_mode=True)
    expected = Verdict.AGREE if factor == 1.0 else Verdict.DIFFER
    assert compared(subject, direction=direction).verdict is expected
    if factor == 1.0:
        stacked = replace(subject, stacked=stacked_gradients(first))
        assert compared(stacked, direction=direction).verdict is expected


def test_complex_functions_are_checked_as_pairs() -> None:
    def pairs(function: object) -> Problem:
        return problem(lambda x: torch.view_as_real(function(torch.view_as_complex(x))), real(6, 2))  # type: ignore[operator]

    assert compared(pairs(lambda z: z * z)).verdict is Verdict.AGREE

    class WithoutConj(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(z)
            return z * z

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g * 2 * ctx.saved_tensors[0]

    assert compared(pairs(WithoutConj.apply)).verdict is Verdict.DIFFER


@pytest.mark.parametrize(("mode", "budget"), [(Mode.EXACT, 1 << 21), (Mode.EXACT, 1 << 23), (Mode.AUTO, 1 << 21)])
def test_memory_stays_within_the_budget(mode: Mode, budget: int) -> None:
    mixing = torch.linspace(-1, 1, 300 * 300, dtype=torch.float64).view(300, 300).sin()
    subject = problem(lambda x: (mixing @ x).sin(), real(300))
    compared(problem(torch.sin, real(3)))  # what is imported on first use does not count
    tracemalloc.start()
    try:
        assert compared(subject, mode, memory_bytes=budget).verdict is Verdict.AGREE
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= budget


@pytest.mark.parametrize("mode", MODES)
def test_swapped_rows_of_equal_slopes_differ(mode: Mode) -> None:
    swapped = FAULTS["rows swapped"]
    subject = problem(inject(torch.mul, swapped), real(16, 9), real(9, seed=1))
    assert compared(subject, mode).verdict is Verdict.DIFFER


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("mode", MODES)
def test_a_jvp_that_clips_differs(mode: Mode, shape: tuple[int, int]) -> None:
    subject = problem(inject(torch.neg, FAULTS["clipped"], order="jvp"), real(*shape))
    assert compared(subject, mode, direction="forward").verdict is Verdict.DIFFER


@pytest.mark.parametrize("name", ["mean subtracted", "averaged", "first element only", "neighbour leaks"])
@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.EXACT])
def test_errors_outside_of_the_structure_are_no_less_wrong(mode: Mode, name: str) -> None:
    """They are spread thinly over entries that are zero in a right Jacobian."""
    func = inject(lambda x: x * 2, FAULTS[name])
    subject = problem(func, real(64, 32))
    assert compared(subject, mode).verdict is Verdict.DIFFER
