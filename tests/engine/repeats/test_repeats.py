"""How many repeats show a rare race, and which op is to blame where torch says so."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradbot.engine.repeats import documented_op, enough, nondeterministic_here, planned


def test_one_in_twenty_needs_fifty_nine_repeats():
    assert enough(0.05, 0.95) == 59


@given(st.floats(0.01, 0.9), st.floats(0.5, 0.999))
def test_enough_repeats_show_the_rate_and_one_fewer_do_not(rate, confidence):
    count = enough(rate, confidence)
    assert 1 - (1 - rate) ** count >= confidence - 1e-9
    assert count == 1 or 1 - (1 - rate) ** (count - 1) < confidence + 1e-9


@pytest.mark.parametrize(
    ("seconds", "cost", "expected"), [(1.0, 1e-4, 59), (1.0, 0.1, 10), (1.0, 2.0, 2), (1.0, 0.0, 59)]
)
def test_repeats_fit_into_the_time_there_is(seconds, cost, expected):
    assert planned(seconds, cost, 8) == expected


def test_a_documented_nondeterministic_op_is_named_below_autograd():
    values = torch.randn(5, requires_grad=True)
    index = torch.tensor([0, 0, 1, 2, 2])
    assert documented_op(lambda: torch.zeros(3).index_add(0, index, values)) == "aten::index_add"
    assert documented_op(lambda: values[index].sum().backward()) == "aten::index_put"


def test_other_ops_are_not_named():
    assert documented_op(lambda: torch.randn(3, requires_grad=True).sin().sum().backward()) == ""


def test_the_documentation_speaks_of_cuda_only():
    assert nondeterministic_here(torch.device("cuda", 0))
    assert not nondeterministic_here(torch.device("cpu"))
