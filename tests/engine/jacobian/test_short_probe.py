"""The first look says clear only of what agrees beyond doubt, with few evaluations, and disputes all else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from engine.jacobian.problems import one_entry_wrong, problem, real, scaled
from faults.inject import inject
from faults.kinds import FAULTS
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Verdict
from gradbot.engine.jacobian.point import look
from gradbot.engine.jacobian.short_probe import Seen, Sight, short_probe
from gradbot.engine.jacobian.tolerances import tolerances_of
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings, Mode

SETTINGS = CheckSettings()


def seen(subject: Problem, *, direction: str = "reverse", seed: int = 0) -> Seen:
    point = look(subject)
    tolerances = tolerances_of(SETTINGS, point.unit_roundoff)
    return short_probe(point, direction, tolerances, np.random.default_rng(seed))


@pytest.mark.parametrize("direction", ["reverse", "forward"])
@pytest.mark.parametrize("func", [torch.sin, lambda x: x @ x.mT, lambda x: x.softmax(-1), lambda x: x.sum()])
def test_what_is_right_is_clear(func: Callable[[Tensor], Tensor], direction: str) -> None:
    assert seen(problem(func, real(4, 5)), direction=direction).sight is Sight.CLEAR


def test_two_evaluations_are_enough_where_they_leave_no_doubt() -> None:
    calls = []

    def counted(x: Tensor) -> Tensor:
        calls.append(1)
        return x.sin()

    point = look(problem(counted, real(4, 5)))
    calls.clear()
    found = short_probe(point, "reverse", tolerances_of(SETTINGS, point.unit_roundoff), np.random.default_rng(0))
    assert found.sight is Sight.CLEAR
    assert len(calls) == 2


def test_curvature_is_extrapolated_away() -> None:
    steep = torch.tensor([0.1, 1.45, -1.5], dtype=torch.float64).requires_grad_()
    assert seen(problem(torch.tan, steep)).sight is Sight.CLEAR
    assert seen(problem(lambda x: scaled(x.tan(), 1.001), steep)).sight is Sight.DISPUTED


def test_a_kink_close_by_is_stepped_inside_of() -> None:
    close = torch.tensor([1.0, 1.0 + 1e-6, 2.0, 0.5, -1e-6, 1e-6, 0.3, 4.0], dtype=torch.float64).requires_grad_()
    for func in (lambda x: x.sort().values, torch.relu):
        assert seen(problem(func, close)).sight is Sight.CLEAR
        assert seen(problem(lambda x, f=func: scaled(f(x), 1.001), close)).sight is Sight.DISPUTED
    assert seen(problem(torch.relu, torch.zeros(4, dtype=torch.float64).requires_grad_())).sight is Sight.DISPUTED


@given(seed=st.integers(0, 10_000), factor=st.sampled_from([0.0, -1.0, 0.5, 0.999, 1.0001, 1.001, 2.0]))
@settings(max_examples=60, deadline=None)
def test_no_wrong_factor_is_clear_whatever_the_seed(seed: int, factor: float) -> None:
    assert seen(problem(lambda x: scaled(x.sin(), factor), real(3, 4)), seed=seed).sight is Sight.DISPUTED


@given(seed=st.integers(0, 10_000), entry=st.integers(0, 19))
@settings(max_examples=40, deadline=None)
def test_a_single_wrong_entry_is_never_clear(seed: int, entry: int) -> None:
    subject = problem(lambda x: one_entry_wrong(x, entry, 1.0001).cos(), real(4, 5))
    assert seen(subject, seed=seed).sight is Sight.DISPUTED


@pytest.mark.parametrize("fault", ["stale", "absolute", "cut at zero", "clipped", "normalised", "ignored"])
@pytest.mark.parametrize("shape", [(1,), (2, 3), (12, 9)])
def test_backwards_that_are_linear_for_some_cotangents_only_differ(fault: str, shape: tuple[int, ...]) -> None:
    wrong = FAULTS[fault]
    if not wrong.applies(torch.Size(shape)):
        pytest.skip("this fault needs more elements")
    faulty = inject(lambda x: (x * 0.9).exp(), wrong, order="backward")
    assert compare_jacobians(problem(faulty, real(*shape)), settings=SETTINGS).verdict is Verdict.DIFFER


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.EXACT])
def test_a_backward_that_clips_beyond_unit_cotangents_differs(mode: Mode) -> None:
    class Clips(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 0.01 * x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return (0.01 * g).clamp(-0.02, 0.02)

    subject = problem(Clips.apply, real(3, 4))
    assert compare_jacobians(subject, settings=CheckSettings(mode=mode)).verdict is Verdict.DIFFER


def test_a_jvp_that_clips_beyond_unit_tangents_differs() -> None:
    faulty = inject(lambda x: (x * 0.4).sin(), FAULTS["clipped"], order="jvp")
    found = compare_jacobians(problem(faulty, real(3, 4)), direction="forward", settings=SETTINGS)
    assert found.verdict is Verdict.DIFFER


@pytest.mark.parametrize(("order", "direction"), [("backward", "reverse"), ("jvp", "forward")])
def test_a_jump_at_the_very_inputs_is_not_taken_for_a_function_without_slope(order: str, direction: str) -> None:
    # the loss is x where the target is 1 and constant wherever the target was moved to
    target = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64).requires_grad_()
    loss = inject(lambda x, t: F.hinge_embedding_loss(x, t, reduction="none"), FAULTS["dropped"], order=order)
    subject = problem(loss, real(3), target)
    assert seen(subject, direction=direction).sight is Sight.DISPUTED
    assert compare_jacobians(subject, direction=direction, settings=SETTINGS).verdict is Verdict.DIFFER


def test_noise_is_disputed_rather_than_believed() -> None:
    subject = problem(lambda x: (x + 1e9).sin() * 1e-3, real(3, 4))
    assert seen(subject).sight is not Sight.CLEAR


def test_small_jacobians_are_formed_in_full_where_an_entry_could_hide() -> None:
    # beside entries of 1e7 an error of 1e-3 is rounding to any projection
    sizes = torch.tensor([1e7, 1e7, 1.0], dtype=torch.float64)

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return (sizes * x).sum()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * (sizes + torch.tensor([0.0, 0.0, 5e-3], dtype=torch.float64))

    subject = problem(Wrong.apply, real(3))
    assert not seen(subject).entries
    assert compare_jacobians(subject, settings=SETTINGS).verdict is Verdict.DIFFER
