"""grad_outputs: linear, and blind to memory layout; of inputs too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine.checks.wrong import assert_fails, assert_passes, kinds, real, rule, run
from torch import Tensor

from gradbot.engine.checks import layouts


def in_memory_order(tensor: Tensor) -> Tensor:
    """The first elements of memory, row by row, as a kernel reads them that ignores strides."""
    flat = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    needed = tensor.storage_offset() + tensor.numel()
    return flat[tensor.storage_offset() : needed].view(tensor.shape) if flat.numel() >= needed else tensor.contiguous()


def scaled(backward: object) -> object:
    return rule(lambda x: 3 * x, backward).apply


@pytest.mark.parametrize("shape", [(), (3,), (4, 3), (2, 3, 4), (2, 3, 4, 5), (0, 3)])
def test_a_right_rule_passes_in_every_shape(shape: tuple[int, ...]) -> None:
    assert_passes(run("grad_outputs", scaled(lambda ctx, x, g: 3 * g), real(*shape)))


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4, 5)])
def test_a_backward_that_ignores_strides_is_wrong(shape: tuple[int, ...]) -> None:
    assert_fails(
        run("grad_outputs", scaled(lambda ctx, x, g: 3 * in_memory_order(g)), real(*shape)), "grad_output_layout"
    )


def test_a_backward_that_refuses_non_contiguous_grad_outputs_is_wrong() -> None:
    result = run("grad_outputs", scaled(lambda ctx, x, g: 3 * g.view(-1).view(x.shape)), real(4, 3))
    assert_fails(result, "grad_output_layout")
    assert "view" in str(result.findings[0].details["message"])


def test_a_backward_wrong_for_expanded_grad_outputs_alone_is_wrong() -> None:
    assert_fails(
        run("grad_outputs", scaled(lambda ctx, x, g: 2 * g if 0 in g.stride() else 3 * g), real(4, 3)),
        "grad_output_layout",
    )


def test_a_backward_that_reads_saved_inputs_in_memory_order_is_wrong() -> None:
    square = rule(lambda x: x * x, lambda ctx, x, g: 2 * g * in_memory_order(x))
    assert_fails(run("grad_outputs", square.apply, real(4, 3)), "input_layout")


def test_what_copies_of_the_same_layout_change_too_is_not_laid_to_the_layout() -> None:
    x = real(4, 3)
    own = x.data_ptr()
    held = rule(lambda t: 3 * t, lambda ctx, saved, g: (3 if saved.data_ptr() == own else 2) * g)
    assert "input_layout" not in kinds(run("grad_outputs", held.apply, x))


@pytest.mark.parametrize(
    "backward",
    [
        lambda ctx, x, g: 3 * g.clamp(-2, 2),
        lambda ctx, x, g: 3 * g.abs(),
        lambda ctx, x, g: 3 * g * g,
        lambda ctx, x, g: 3 * g / g.norm().clamp_min(1),
        lambda ctx, x, g: 3 * g.nan_to_num().float().double().sign() * g.abs() ** 1.001,
    ],
)
def test_a_backward_that_is_not_linear_is_wrong(backward: object) -> None:
    assert_fails(run("grad_outputs", scaled(backward), real(4)), "nonlinear_backward")


def test_gradients_without_grad_outputs_are_wrong() -> None:
    assert_fails(
        run("grad_outputs", scaled(lambda ctx, x, g: torch.full_like(g, 3.0)), real(4)),
        "backward_not_mul_by_grad_output",
    )


def test_gradients_that_cancel_are_not_called_nonlinear() -> None:
    assert_passes(run("grad_outputs", lambda x: torch.softmax(x, -1).sum(-1), real(4, 5)))
    assert_passes(run("grad_outputs", lambda x: torch.nn.functional.layer_norm(x, (5,)), real(4, 5)))


def test_a_pole_is_no_finding() -> None:
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    assert_passes(run("grad_outputs", torch.sqrt, x))


@pytest.mark.parametrize("like", [lambda x, g: x, lambda x, g: g], ids=["inputs", "grad_outputs"])
def test_a_backward_that_draws_random_numbers_is_neither_nonlinear_nor_a_matter_of_layout(
    like: Callable[..., Any],
) -> None:
    noisy = rule(torch.sin, lambda ctx, x, g: g * x.cos() * (1 + torch.rand_like(like(x, g))))
    assert_passes(run("grad_outputs", noisy.apply, real(3, 4)))


def test_a_backward_that_draws_random_numbers_may_still_be_nonlinear() -> None:
    nonlinear = rule(torch.sin, lambda ctx, x, g: g.abs() * x.cos() * (1 + torch.rand_like(x)))
    assert_fails(run("grad_outputs", nonlinear.apply, real(3, 4)), "nonlinear_backward")


def test_arithmetic_in_single_precision_is_not_called_nonlinear() -> None:
    assert_passes(run("grad_outputs", lambda x: x.float().tanh().double(), real(4, 5)))


def test_a_backward_that_spoils_grad_output_is_not_called_nonlinear() -> None:
    assert_passes(run("grad_outputs", scaled(lambda ctx, x, g: (3 * g, g.zero_())[0]), real(4, 3)))


@pytest.mark.parametrize(("name", "arrange"), layouts.ARRANGEMENTS)
def test_arrangements_differ_in_memory_and_copies_keep_them(name: str, arrange: layouts.Arrange) -> None:
    tensor = torch.arange(120.0).view(2, 3, 4, 5)
    arranged = arrange(tensor)
    assert arranged is not None
    assert arranged.stride() != tensor.stride()
    copied = layouts.copy_of(arranged)
    assert copied.stride() == arranged.stride()
    assert torch.equal(copied, arranged)
    names = [each for each, _ in layouts.ARRANGEMENTS]
    assert torch.equal(arranged, tensor) == (names.index(name) < layouts.VALUE_PRESERVING)
