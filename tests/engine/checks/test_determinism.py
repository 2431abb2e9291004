"""determinism: what differs, where, by how much and how often."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from engine.checks.wrong import assert_fails, assert_passes, real, rule, run
from torch import Tensor

from gradbot.engine.checks.statistics import clopper_pearson
from gradbot.model import Spread


def spread_of(result: Any, kind: str) -> Spread:
    (finding,) = [each for each in result.findings if each.kind == kind]
    return finding.evidence.spreads[0]


def test_a_right_rule_passes_with_its_repeats() -> None:
    result = run("determinism", torch.tanh, real(3))
    assert_passes(result)
    assert result.evidence is not None
    assert [each.stage for each in result.evidence.spreads] == ["forward", "backward", "state", "second_backward"]
    assert all(each.repeats >= 8 for each in result.evidence.spreads)


def test_noise_in_the_backward_is_found_with_its_size() -> None:
    noisy = rule(torch.sin, lambda ctx, x, g: g * x.cos() * (1 + 1e-10 * torch.rand((), dtype=torch.float64)))
    result = run("determinism", noisy.apply, real(3))
    assert_fails(result, "nondeterministic")
    spread = spread_of(result, "nondeterministic")
    assert spread.stage == "backward"
    assert 0 < spread.relative < 2e-10
    # the generator decides: under a fixed seed it would not differ
    assert spread.fixed_seed is False


def test_noise_within_nondet_tol_is_forgiven() -> None:
    noisy = rule(torch.sin, lambda ctx, x, g: g * x.cos() * (1 + 1e-10 * torch.rand((), dtype=torch.float64)))
    assert_passes(run("determinism", noisy.apply, real(3), nondet_tol=1e-8))


def test_a_rare_race_is_found_with_its_rate() -> None:
    calls = itertools.count()
    rare = rule(torch.sin, lambda ctx, x, g: g * x.cos() * (1.5 if next(calls) % 20 == 19 else 1.0))
    result = run("determinism", rare.apply, real(3), determinism_seconds=60.0)
    assert_fails(result, "nondeterministic")
    spread = spread_of(result, "nondeterministic")
    assert spread.rate_low < 0.05 < spread.rate_high
    assert spread.fixed_seed or spread.differing


def test_state_carried_on_the_graph_is_told_apart() -> None:
    class Drifts(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.scale = 2.0
            return 2 * x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            ctx.scale += 1
            return (ctx.scale - 1) * g

    result = run("determinism", Drifts.apply, real(3))
    assert spread_of(result, "nondeterministic").stage == "state"


def test_a_forward_that_differs_is_found() -> None:
    calls = itertools.count()
    assert_fails(run("determinism", lambda x: x + next(calls), real(3)), "nondeterministic_forward")


@pytest.mark.parametrize("func", [torch.nn.functional.dropout, lambda x: x + torch.randn_like(x)])
def test_random_functions_are_replayed(func: Any) -> None:
    assert_passes(run("determinism", func, real(9)))


def test_python_and_numpy_randomness_is_replayed() -> None:
    import random

    import numpy as np

    assert_passes(run("determinism", lambda x: x * random.random() + float(np.random.rand()), real(3)))


@pytest.mark.parametrize("events", [0, 1, 4, 8])
def test_the_interval_of_a_rate_contains_it(events: int) -> None:
    low, high = clopper_pearson(events, 8)
    assert 0 <= low <= events / 8 <= high <= 1


def test_the_interval_is_that_of_the_tables() -> None:
    # Clopper and Pearson, 95%: 1 of 10 -> [0.0025, 0.4450]
    assert clopper_pearson(1, 10) == pytest.approx((0.00253, 0.44502), abs=1e-5)
    assert clopper_pearson(0, 10) == pytest.approx((0.0, 0.30850), abs=1e-5)
