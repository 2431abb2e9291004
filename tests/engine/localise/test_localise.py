"""Wrong entries are found whatever the size: slices first, every named entry confirmed, and whether that is all."""

from __future__ import annotations

import math

import pytest
import torch
from engine.bent import DOUBLE, bent, normal, problem
from hypothesis import given, settings
from hypothesis import strategies as st

from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.localise import localise
from gradbot.engine.localise_groups import search
from gradbot.model import CheckSettings, Mode, Slice

SETTINGS = CheckSettings()
UNFORMED = Comparison(verdict=Verdict.DIFFER, method="probe", wrong_pairs=((0, 0),))
WEIGHT = normal(64, 64) / 8


def forward(x):
    return torch.tanh(x @ WEIGHT)


def scaled(index, factor):
    def bend(grad):
        changed = grad.clone()
        changed[index] *= factor
        return changed

    return bend


def by_groups(bend):
    return localise(problem(bent(forward, bend), normal(96, 64, seed=1)), UNFORMED, SETTINGS)[0]


def test_one_wrong_entry_of_twenty_five_million_is_named():
    found = by_groups(scaled((17, 5), 1.1))
    assert {entry.input_index for entry in found.evidence.entries} == {(17, 5)}
    assert found.evidence.complete
    assert found.confirmed


def test_every_named_entry_shows_its_numbers():
    entry = by_groups(scaled((17, 5), 1.1)).evidence.entries[0]
    assert entry.analytical == pytest.approx(1.1 * entry.numerical, rel=1e-6)
    assert entry.error > entry.tolerance + entry.error_bar


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ((37,), Slice(side="input", dim=0, indices=(37,), size=96)),
        ((slice(None), 63), Slice(side="input", dim=1, indices=(63,), size=64)),
        ((slice(None), [31, 63]), Slice(side="input", dim=1, indices=(31, 63), size=64)),
    ],
)
def test_rows_and_columns_are_said_as_such(index, expected):
    found = by_groups(scaled(index, -1.0))
    assert expected in found.evidence.slices
    assert found.evidence.complete


def test_what_is_wrong_everywhere_is_not_claimed_to_be_narrowed_down():
    found = by_groups(lambda grad: 1.5 * grad)
    assert not [each for each in found.evidence.slices if each.side == "input"]
    assert found.evidence.complete is False
    assert found.confirmed


def test_maps_of_what_cannot_be_formed_are_bounded_and_show_the_block():
    found = by_groups(scaled((slice(0, 3),), 3.0))
    error = next(each for each in found.evidence.maps if each.what == "error")
    assert len(error.values) <= 64
    assert max(map(len, error.values)) <= 64
    largest = max(range(len(error.values)), key=lambda row: max(map(abs, error.values[row])))
    assert largest == 0


def test_a_formed_jacobian_gives_the_same_place():
    small = problem(bent(torch.sin, scaled((1, 2), 2.0)), normal(3, 4))
    comparison = compare_jacobians(small, settings=CheckSettings(mode=Mode.EXACT))
    found = localise(small, comparison, SETTINGS)[0]
    assert found.evidence.entries[0].input_index == (1, 2)
    assert found.evidence.wrong_entries == 1
    assert found.evidence.complete


def test_a_right_function_has_nothing_to_name():
    right = problem(forward, normal(96, 64, seed=1))
    found = localise(right, UNFORMED, SETTINGS)[0]
    assert found.evidence.entries == ()
    assert not found.confirmed


def test_a_jacobian_of_a_thousand_million_entries_is_located_in_few_calls():
    weight, calls = normal(128, 128) / 11, {"forward": 0, "backward": 0}

    def counted(name, func):
        def call(value):
            calls[name] += 1
            return func(value)

        return call

    forward = counted("forward", lambda x: torch.tanh(x @ weight))
    big = problem(bent(forward, counted("backward", scaled((200, 100), 1.1))), normal(256, 128))
    found = localise(big, UNFORMED, SETTINGS)[0]
    assert {entry.input_index for entry in found.evidence.entries} == {(200, 100)}
    assert max(calls.values()) < 1000  # forming it takes one for each of 32,768 entries


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_searching_finds_exactly_the_wrong_elements(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    count = math.prod(shape)
    wrong = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=6))
    truth = torch.zeros(count, dtype=DOUBLE)
    truth[list(wrong)] = 1
    found = search(shape, lambda mask: bool((mask * truth).any()))
    assert found.elements == tuple(sorted(wrong))
    assert found.complete


def test_an_incomplete_search_says_so():
    truth = torch.zeros(20, dtype=DOUBLE)
    truth[3] = 1
    seen = []

    def flagged(mask):
        seen.append(mask)
        hidden = len(seen) > 8  # an error that shows only later, as a rare one does
        return bool((mask * truth).any()) or (hidden and bool(mask[11]) and float(mask.sum()) > 10)

    assert not search((20,), flagged).complete
