"""grad_metadata and needs_input_grad: what a backward hands back, and for which inputs."""

from __future__ import annotations

from typing import Any

import torch
from engine.checks.wrong import assert_fails, assert_passes, real, rule, run
from torch import Tensor

from gradbot.engine.checks.needs_input_grad import subsets
from gradbot.model import Outcome, Severity


class Affine(torch.autograd.Function):
    """x * weight + bias, whose gradient of the bias hangs on whether the weight needs one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight + bias

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        frozen = not ctx.needs_input_grad[1]
        return g * weight, None if frozen else g * x, None if frozen else g


def test_a_frozen_input_that_takes_another_gradient_along_is_found() -> None:
    result = run("needs_input_grad", Affine.apply, real(3), real(3, seed=1), real(3, seed=2))
    assert_fails(result, "needs_input_grad")
    assert [each.input for each in result.findings] == [2]
    assert result.findings[0].details["frozen"] == "weight"


def test_a_backward_that_raises_when_an_input_is_frozen_is_a_warning_and_no_verdict() -> None:
    def chokes(ctx: Any, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        assert all(ctx.needs_input_grad)
        return g * y, g * x

    result = run("needs_input_grad", rule(torch.mul, chokes).apply, real(3), real(3, seed=1))
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "raises_when_frozen")
    assert {each.severity for each in result.findings} == {Severity.WARNING}


def test_a_wrong_gradient_counts_although_another_subset_raises() -> None:
    def mixed(ctx: Any, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        assert ctx.needs_input_grad[0]
        return g * y if ctx.needs_input_grad[1] else 2 * g * y, g * x

    assert_fails(run("needs_input_grad", rule(torch.mul, mixed).apply, real(3), real(3, seed=1)), "needs_input_grad")


def test_what_a_solver_is_off_by_is_no_finding() -> None:
    def solved(ctx: Any, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        error = 0.0 if all(ctx.needs_input_grad) else 1e-6
        return g * y * (1 + error), g * x * (1 + error)

    assert_passes(run("needs_input_grad", rule(torch.mul, solved).apply, real(3), real(3, seed=1)))


def test_options_that_the_forward_pops_are_there_in_every_call() -> None:
    class Popping(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, options: dict[str, Any], names: list[str]) -> Tensor:
            ctx.scale = options.pop(names.pop())
            return x * ctx.scale

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
            return g * ctx.scale, None, None

    options, names = {"scale": 2.0}, ["scale"]
    assert_passes(run("backward", Popping.apply, real(3), options, names))
    assert (options, names) == ({"scale": 2.0}, ["scale"])


def test_a_rule_that_saves_work_rightly_passes() -> None:
    def right(ctx: Any, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return g * y if ctx.needs_input_grad[0] else None, g * x if ctx.needs_input_grad[1] else None

    assert_passes(run("needs_input_grad", rule(torch.mul, right).apply, real(3), real(3, seed=1)))


def test_modules_with_frozen_parameters_pass() -> None:
    assert_passes(run("needs_input_grad", torch.nn.Linear(3, 2).double(), real(4, 3)))


def test_one_input_leaves_nothing_to_freeze() -> None:
    result = run("needs_input_grad", torch.sin, real(3))
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "one_input")


def test_every_subset_of_few_inputs_and_a_bounded_number_of_many() -> None:
    assert set(subsets(3)) == {frozenset(each) for each in ({0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2})}
    assert len(subsets(10)) == 20


def test_a_complex_gradient_of_a_real_input_is_found() -> None:
    wrong = rule(torch.sin, lambda ctx, x, g: torch.complex(g * x.cos(), g))
    assert_fails(run("grad_metadata", wrong.apply, real(3)), "grad_dtype")
    assert_fails(run("backward", wrong.apply, real(3)), "grad_dtype")


def test_a_gradient_on_another_device_is_found() -> None:
    wrong = rule(torch.mul, lambda ctx, x, y, g: (g * y, torch.empty_like(y, device="meta")))
    assert_fails(run("grad_metadata", wrong.apply, real(2), real(2, seed=1)), "wrong_grad_device")


def test_gradients_that_autograd_sums_to_size_are_fine() -> None:
    broadcast = rule(torch.mul, lambda ctx, x, y, g: (g * y, g * x))
    assert_passes(run("grad_metadata", broadcast.apply, real(4, 3), real(3, seed=1)))


def test_a_strided_gradient_of_a_sparse_input_is_fine() -> None:
    sparse = torch.eye(3, dtype=torch.float64).to_sparse().requires_grad_()
    assert_passes(run("grad_metadata", lambda s: s.to_dense() * 2, sparse))


def test_a_sparse_gradient_of_other_dims_is_found() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, s: Tensor) -> Tensor:
            return 2 * s.to_dense()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return (2 * g).to_sparse(1)

    sparse = torch.eye(3, dtype=torch.float64).to_sparse().requires_grad_()
    assert_fails(run("grad_metadata", Doubled.apply, sparse), "wrong_grad_sparse_dims")
