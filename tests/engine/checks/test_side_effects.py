"""side_effects: whatever a function changes beside its result."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine.checks.wrong import assert_fails, assert_passes, kinds, real, rule, run
from torch import Tensor

from gradbot.model import Outcome, Severity


def test_a_pure_function_passes() -> None:
    assert_passes(run("side_effects", lambda x, y: x @ y, real(2, 3), real(3, 2, seed=1)))


def test_a_backward_that_zeroes_grad_output_is_found() -> None:
    wrong = rule(torch.neg, lambda ctx, x, g: (-g, g.zero_())[0])
    assert_fails(run("side_effects", wrong.apply, real(3)), "grad_output_mutated")


def test_a_forward_that_writes_into_its_input_is_found() -> None:
    def scales_its_input(x: Tensor) -> Tensor:
        x.data.mul_(2)
        return x.sin()

    result = run("side_effects", scales_its_input, real(3))
    assert_fails(result, "input_mutated")
    assert result.findings[0].input_name == "x"


def test_a_backward_that_writes_into_what_it_saved_is_found() -> None:
    class Scratch(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x, x.cos())
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            slope = ctx.saved_tensors[1]
            result = g * slope
            slope.data.zero_()
            return result

    assert_fails(run("side_effects", Scratch.apply, real(3)), "saved_tensor_mutated")


def test_a_backward_that_writes_into_a_saved_input_is_found_and_undone() -> None:
    x = real(3)
    before = x.detach().clone()
    wrong = rule(torch.sin, lambda ctx, x, g: (g * x.cos(), x.data.zero_())[0])
    assert_fails(run("side_effects", wrong.apply, x), "saved_tensor_mutated")
    assert torch.equal(x.detach(), before)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda: torch.set_default_dtype(torch.float64), "the default dtype"),
        (lambda: torch.set_grad_enabled(False), "grad mode"),
        (lambda: torch.use_deterministic_algorithms(True), "deterministic algorithms"),
    ],
)
def test_global_state_that_the_backward_changes_is_found(change: Any, state: str) -> None:
    wrong = rule(torch.sin, lambda ctx, x, g: (g * x.cos(), change())[0])
    result = run("side_effects", wrong.apply, real(3))
    if state == "grad mode":  # autograd itself restores it around a backward
        assert_passes(result)
        return
    assert_fails(result, "global_state_changed")
    assert result.findings[0].details == {"state": state, "stage": "backward"}


def test_a_function_that_sets_the_seed_is_found() -> None:
    def seeds(x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return x * torch.rand_like(x)

    assert_fails(run("side_effects", rule(seeds, lambda ctx, x, g: g).apply, real(3)), "global_state_changed")
    # plain functions do so to be reproducible: said, and no failure
    plain = run("side_effects", seeds, real(3))
    assert (plain.outcome, [each.severity for each in plain.findings]) == (Outcome.PASSED, [Severity.WARNING])


def test_drawing_random_numbers_is_fine() -> None:
    assert_passes(run("side_effects", torch.nn.functional.dropout, real(9)))


def test_running_statistics_are_told_and_no_warning() -> None:
    result = run("side_effects", torch.nn.BatchNorm1d(3).double(), real(4, 3))
    assert result.outcome is Outcome.PASSED
    assert {(each.kind, each.severity) for each in result.findings} == {("buffer_mutated", Severity.NOTE)}


def test_a_buffer_that_ones_own_module_changes_is_a_warning() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x.sin()

    module = Counting()
    result = run("side_effects", module, real(3))
    assert (result.outcome, kinds(result)) == (Outcome.PASSED, ["buffer_mutated"])
    assert result.findings[0].severity is Severity.WARNING
    assert float(module.calls) == 0


def test_a_declared_in_place_function_is_fine() -> None:
    assert_passes(run("side_effects", lambda x: x.mul_(2), real(3)))
