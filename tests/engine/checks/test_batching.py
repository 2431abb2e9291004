"""batched_grad and batched_forward_grad: either vmap against the loop; what merely does not run is unsupported."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine.checks.wrong import assert_fails, assert_passes, kinds, real, rule, run
from torch import Tensor

from gradbot.model import Outcome, Severity


def product(vmap_rule: Any = None, *, generate: bool = False) -> Any:
    """x * y in the new style, with a vmap rule of its own or a generated one."""

    class Product(torch.autograd.Function):
        generate_vmap_rule = generate

        @staticmethod
        def forward(x: Tensor, y: Tensor) -> Tensor:
            return x * y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            return g * y, g * x

        @staticmethod
        def jvp(ctx: Any, t: Tensor, u: Tensor) -> Tensor:
            x, y = ctx.saved_tensors
            return t * y + u * x

    if vmap_rule is not None:
        Product.vmap = staticmethod(vmap_rule)
    return Product.apply


def right_rule(info: Any, dims: Any, x: Tensor, y: Tensor) -> tuple[Tensor, int]:
    return x.movedim(dims[0], 0) * y.movedim(dims[1], 0), 0


def first_sample_for_all(info: Any, dims: Any, x: Tensor, y: Tensor) -> tuple[Tensor, int]:
    moved = x.movedim(dims[0], 0)
    return moved * y.movedim(dims[1], 0)[:1].expand_as(moved), 0


def refuses(info: Any, dims: Any, x: Tensor, y: Tensor) -> tuple[Tensor, int]:
    raise NotImplementedError("not today")


@pytest.mark.parametrize("check", ["batched_grad", "batched_forward_grad"])
class TestCustomRules:
    def test_a_right_rule_passes(self, check: str) -> None:
        assert_passes(run(check, product(right_rule), real(3), real(3, seed=1)))

    def test_a_generated_rule_passes(self, check: str) -> None:
        assert_passes(run(check, product(generate=True), real(3), real(3, seed=1)))

    def test_a_declared_rule_that_raises_is_wrong(self, check: str) -> None:
        result = run(check, product(refuses), real(3), real(3, seed=1))
        assert_fails(result, check)
        assert "not today" in str(result.findings[0].details["message"])

    def test_no_rule_is_no_failure(self, check: str) -> None:
        result = run(check, product(), real(3), real(3, seed=1))
        assert result.outcome is Outcome.PASSED
        assert [each.code for each in result.notes] == ["not_batched"]


def test_a_rule_that_takes_the_first_sample_for_all_is_wrong() -> None:
    assert_fails(run("batched_grad", product(first_sample_for_all), real(3), real(3, seed=1)), "batched_grad")


def test_a_backward_that_mixes_up_the_batch_is_wrong() -> None:
    def sums(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        # right for one cotangent; under vmap the batch has become a dimension of its own that is not seen
        return SumAll.apply(g).expand(x.shape) * 1.0

    class SumAll(torch.autograd.Function):
        @staticmethod
        def forward(g: Tensor) -> Tensor:
            return g.sum()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, dims: Any, g: Tensor) -> tuple[Tensor, None]:
            return g.sum(), None

    assert_fails(run("batched_grad", rule(lambda x: x.sum().expand(3).clone(), sums).apply, real(3)), "batched_grad")


def test_a_backward_that_reads_numbers_is_unsupported() -> None:
    reads = rule(torch.sin, lambda ctx, x, g: g * x.cos() if float(g.sum()) < 1e9 else g)
    result = run("batched_grad", reads.apply, real(3))
    assert (result.outcome, result.reason) == (Outcome.UNSUPPORTED, "no_batching")


@pytest.mark.parametrize("check", ["batched_grad", "batched_forward_grad"])
def test_random_functions_are_skipped_with_the_reason(check: str) -> None:
    result = run(check, torch.nn.functional.dropout, real(9))
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "random_batched")


@pytest.mark.parametrize("check", ["batched_grad", "batched_forward_grad"])
def test_functions_of_torch_pass(check: str) -> None:
    result = run(check, lambda x, y: torch.softmax(x @ y, -1), real(2, 3), real(3, 2, seed=1))
    assert (result.outcome, kinds(result)) == (Outcome.PASSED, [])


def test_ops_of_torch_that_disagree_with_themselves_are_a_warning() -> None:
    x = torch.ones((), dtype=torch.float64, requires_grad=True)
    # roll of a scalar rolls the batch instead
    result = run("batched_grad", lambda t: torch.roll(t, 1), x)
    assert result.outcome is Outcome.PASSED
    assert {each.severity for each in result.findings} <= {Severity.WARNING}
