"""What holds for any function: one wrong entry is found at its place, a right function passes, in both modes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import Function

from gradbot import GradcheckError, gradcheck
from gradbot.engine.compat.layouts import coordinates, densified, specified, unravel
from gradbot.engine.compat.memory import overlaps_itself, share_memory

FEW = settings(max_examples=25, deadline=None)
LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]


class Linear(Function):
    """x -> M x with a Jacobian as it is claimed, right or not."""

    @staticmethod
    def forward(ctx, x, matrix, claimed):
        ctx.save_for_backward(claimed)
        ctx.save_for_forward(claimed)
        return matrix @ x

    @staticmethod
    def backward(ctx, g):
        return ctx.saved_tensors[0].T @ g, None, None

    @staticmethod
    def jvp(ctx, t, *_):
        return ctx.saved_tensors[0] @ t


@st.composite
def linear_maps(draw):
    rows, columns = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    matrix = torch.rand(rows, columns, dtype=torch.float64, generator=generator) * 2 - 1
    x = torch.rand(columns, dtype=torch.float64, generator=generator).requires_grad_()
    place = draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1))
    return matrix, x, place


@FEW
@given(linear_maps(), st.booleans(), st.booleans())
def test_a_right_jacobian_passes(drawn, fast, forward):
    matrix, x, _ = drawn

    assert gradcheck(lambda x: Linear.apply(x, matrix, matrix), (x,), fast_mode=fast, check_forward_ad=forward)


@FEW
@given(linear_maps(), st.booleans(), st.sampled_from([-1.0, -0.1, 0.01, 0.1, 1.0]))
def test_one_wrong_entry_is_found_where_it_is(drawn, fast, error):
    matrix, x, place = drawn
    claimed = matrix.clone()
    claimed[place] += error

    with pytest.raises(GradcheckError) as caught:
        gradcheck(lambda x: Linear.apply(x, matrix, claimed), (x,), fast_mode=fast)

    entries = caught.value.findings[0].evidence.entries
    assert [(each.output_index, each.input_index) for each in entries] == [((place[0],), (place[1],))]


@FEW
@given(linear_maps(), st.booleans())
def test_one_wrong_entry_of_a_jvp_is_found_where_it_is(drawn, fast):
    matrix, x, place = drawn
    claimed = matrix.clone()
    claimed[place] += 0.1

    with pytest.raises(GradcheckError) as caught:
        gradcheck(
            lambda x: Linear.apply(x, matrix, claimed),
            (x,),
            fast_mode=fast,
            check_forward_ad=True,
            check_backward_ad=False,
        )

    assert caught.value.findings[0].kind == "jacobian_mismatch_forward"
    entries = caught.value.findings[0].evidence.entries
    assert [(each.output_index, each.input_index) for each in entries] == [((place[0],), (place[1],))]


@FEW
@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_a_tensor_overlaps_itself_if_two_elements_have_one_place(sizes, strides):
    count = min(len(sizes), len(strides))
    tensor = torch.zeros(100).as_strided(sizes[:count], strides[:count])
    places = [
        sum(i * s for i, s in zip(unravel(k, tensor.shape), tensor.stride(), strict=True))
        for k in range(tensor.numel())
    ]

    assert overlaps_itself(tensor) == (len(set(places)) < len(places))


@FEW
@given(st.integers(0, 8), st.integers(1, 4), st.integers(0, 8), st.integers(1, 4))
def test_tensors_share_memory_if_any_elements_have_one_place(start, step, other_start, other_step):
    memory = torch.zeros(40)
    one, other = memory[start : start + 12 : step], memory[other_start : other_start + 12 : other_step]
    meet = set(range(start, start + 12, step)) & set(range(other_start, other_start + 12, other_step))

    assert share_memory(one, other) == bool(meet)


@FEW
@given(st.sampled_from(LAYOUTS), st.integers(0, 2**31), st.booleans())
def test_positions_of_sparse_values_are_those_of_the_dense_tensor(layout, seed, complex_values):
    generator = torch.Generator().manual_seed(seed)
    dense = torch.rand(4, 6, dtype=torch.float64, generator=generator)
    dense = dense * (torch.rand(4, 6, generator=generator) > 0.5)
    if complex_values:
        dense = dense + 2j * dense
    block = (2, 3) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    sparse = dense.to_sparse(layout=layout, blocksize=block).requires_grad_()

    masked, unmasked = coordinates(sparse, masked=True), coordinates(sparse, masked=False)

    assert torch.equal(masked.entries.reshape(-1), dense.reshape(-1)[specified(sparse)])
    assert torch.equal(unmasked.entries.reshape(-1), dense.reshape(-1)[unmasked.positions])
    assert torch.equal(densified(sparse)[0].to_dense(), dense)
    assert sorted(unmasked.positions.tolist()) == list(range(24))
