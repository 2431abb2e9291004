"""undefined_grad: outputs that take no part count as zeros."""

from __future__ import annotations

import torch
from engine.checks.wrong import assert_fails, assert_passes, real, rule, run


def pair(backward: object, *, materialize: bool = False) -> object:
    return rule(lambda x: (x.sin(), x.cos()), backward, materialize=materialize).apply


def test_a_backward_that_allows_for_none_passes() -> None:
    def right(ctx: object, x: torch.Tensor, g: torch.Tensor | None, h: torch.Tensor | None) -> torch.Tensor | None:
        if g is None and h is None:
            return None
        return (0 if g is None else g * x.cos()) - (0 if h is None else h * x.sin())

    assert_passes(run("undefined_grad", pair(right), real(3)))


def test_a_backward_that_chokes_on_none_is_wrong() -> None:
    assert_fails(run("undefined_grad", pair(lambda ctx, x, g, h: g * x.cos() - h * x.sin()), real(3)), "undefined_grad")


def test_the_same_backward_is_right_where_zeros_are_materialized() -> None:
    chokes = pair(lambda ctx, x, g, h: g * x.cos() - h * x.sin(), materialize=True)
    assert_passes(run("undefined_grad", chokes, real(3)))


def test_none_taken_for_ones_is_wrong_and_names_the_output() -> None:
    def ones(ctx: object, x: torch.Tensor, g: torch.Tensor | None, h: torch.Tensor | None) -> torch.Tensor:
        return (x.cos() if g is None else g * x.cos()) - (0 if h is None else h * x.sin())

    result = run("undefined_grad", pair(ones), real(3))
    assert_fails(result, "undefined_grad")
    assert 0 in [each.output for each in result.findings]
    assert 1 not in [each.output for each in result.findings]


def test_a_pole_is_no_finding() -> None:
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    assert_passes(run("undefined_grad", lambda t: (t.sqrt(), t), x))
