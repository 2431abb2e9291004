"""A mismatch at a kink, a jump or an edge is told from a wrong gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from engine.bent import DOUBLE, bent, custom, normal, problem
from hypothesis import given, settings
from hypothesis import strategies as st

from gradbot.engine.comparison import Block, Comparison, Verdict
from gradbot.engine.directional import Point
from gradbot.engine.kinks import TriageVerdict, triage
from gradbot.model import CheckSettings

SETTINGS = CheckSettings()


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=DOUBLE)


def central(problem, eps=1e-6) -> Comparison:
    """The comparison that plain central differences give, as a checker without triage would see it."""
    point = Point.of(problem)
    (values_in,) = point.inputs
    analytical = torch.stack([point.row(row)[0] for row in range(len(point.values))])
    columns = []
    for column in range(len(values_in)):
        unit = torch.zeros_like(values_in)
        unit[column] = 1
        change, taken = point.difference((unit,), eps)
        columns.append(change / taken[0][column])
    numerical = torch.stack(columns, 1)
    block = Block(
        output=0,
        input=0,
        analytical=analytical,
        numerical=numerical,
        error_bar=torch.zeros_like(numerical),
        tolerance=1e-5 + 1e-3 * numerical.abs(),
    )
    wrong = bool(block.wrong.any())
    return Comparison(
        verdict=Verdict.DIFFER if wrong else Verdict.AGREE,
        method="dense",
        wrong_pairs=((0, 0),) if wrong else (),
        blocks=(block,),
    )


TIES = torch.tensor([[1.0, 2.0, 2.0, 0.0], [3.0, 3.0, 3.0, 1.0]], dtype=DOUBLE)

RIGHT = {
    "relu at zeros": (torch.relu, torch.zeros(2, 3, dtype=DOUBLE), "kink_valid"),
    "max_pool1d of ties": (lambda x: F.max_pool1d(x, 2), values(1, 1, 2, 2, 0, 3)[None], "kink_valid"),
    "sort with a gap below the step": (lambda x: x.sort().values, values(1, 1 + 5e-7, 2), "kink_valid"),
    "relu beside its kink": (torch.relu, values(1e-9, 1.0, -2.0), "kink_valid"),
    "median of ties": (lambda x: x.median(1).values, TIES, "kink_valid"),
    "sort of equals": (lambda x: x.sort(0, descending=True).values, torch.ones(4, 3, dtype=DOUBLE), "kink_valid"),
    "norm at zero": (lambda x: x.norm() + x[0], values(0, 0, 0), "kink_valid"),
    "floor at integers": (lambda x: x.floor() + x, values(1, 2, 0.3), "jump"),
    "hardshrink at its edge": (lambda x: F.hardshrink(x, 0.5), values(0.5, -0.5, 1.0), "jump"),
}

WRONG = {
    "clamp(1, 1) at 1": (lambda x: x.clamp(1.0, 1.0), values(0, 1, 2), "wrong_at_point"),
    "relu with 2 at zero": (
        custom(torch.relu, lambda g, x: g * ((x > 0).to(g) + 2 * (x == 0).to(g))),
        values(0, 1, -1),
        "kink_invalid",
    ),
    "no gradient at ties of max": (
        custom(lambda x: x.amax(1), lambda g, x: torch.zeros_like(x)),
        torch.ones(2, 3, dtype=DOUBLE),
        "wrong_gradient",
    ),
    "relu x1.01 with zeros": (
        custom(torch.relu, lambda g, x: 1.01 * g * (x > 0)),
        values(0, 1, -1, 2),
        "wrong_gradient",
    ),
    "sign flipped at ties": (bent(lambda x: x.max(1).values, torch.neg), TIES, "wrong_gradient"),
    "one wrong row among zeros": (
        bent(torch.relu, lambda g: torch.cat([2 * g[:1], g[1:]])),
        values(1, 0, 0, -1),
        "wrong_gradient",
    ),
    "tanh wrong everywhere": (bent(torch.tanh, lambda g: 1.01 * g), normal(5), "wrong_gradient"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_correct_function_is_not_called_wrong_where_it_is_not_smooth(name):
    func, point, expected = RIGHT[name]
    here = problem(func, point)
    assert triage(here, central(here), SETTINGS).verdict.value == expected


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_gradient_is_not_excused_by_a_kink(name):
    func, point, expected = WRONG[name]
    here = problem(func, point)
    assert triage(here, central(here), SETTINGS).verdict.value == expected


def test_a_gradient_that_is_undefined_where_the_domain_ends_is_an_edge():
    here = problem(torch.sqrt, values(0.0, 1.0, 4.0))
    assert triage(here, central(here), SETTINGS).verdict is TriageVerdict.DOMAIN_EDGE


def test_without_formed_jacobians_the_suspects_are_searched_for():
    weight = normal(40, 40)
    right = problem(lambda x: torch.relu(x @ weight), torch.where(normal(30, 40) > 0.5, 0.0, normal(30, 40, seed=1)))
    wrong = problem(bent(lambda x: torch.relu(x @ weight), lambda g: 1.1 * g), *right.inputs)
    seen = Comparison(verdict=Verdict.DIFFER, method="probe", wrong_pairs=((0, 0),))
    assert triage(wrong, seen, SETTINGS).verdict is TriageVerdict.WRONG_GRADIENT
    assert triage(right, seen, SETTINGS).verdict not in (
        TriageVerdict.WRONG_GRADIENT,
        TriageVerdict.WRONG_AT_POINT,
        TriageVerdict.KINK_INVALID,
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-2, 2), min_size=6, max_size=6), st.sampled_from(["relu", "abs", "max", "sort", "clamp"]))
def test_integer_grids_never_condemn_a_correct_function(numbers, name):
    func = {
        "relu": torch.relu,
        "abs": torch.abs,
        "max": lambda x: x.view(2, 3).amax(1),
        "sort": lambda x: x.sort().values,
        "clamp": lambda x: x.clamp(-1, 1),
    }[name]
    here = problem(func, values(*numbers))
    comparison = central(here)
    if comparison.verdict is Verdict.DIFFER:
        assert triage(here, comparison, SETTINGS).verdict is TriageVerdict.KINK_VALID


def test_a_function_that_refuses_every_step_is_at_the_edge_of_its_domain():
    def on_the_simplex(x):
        if abs(float(x.detach().sum()) - 1) > 1e-9:
            raise ValueError("expected probabilities that sum to one")
        return bent(torch.sin, lambda g: 2 * g)(x)

    here = problem(on_the_simplex, values(0.25, 0.75))
    seen = Comparison(verdict=Verdict.DIFFER, method="dense", wrong_pairs=((0, 0),))
    assert triage(here, seen, SETTINGS).verdict is TriageVerdict.DOMAIN_EDGE


def test_a_function_with_a_domain_nearby_is_still_found_wrong():
    def positive_definite(x):
        if bool((torch.linalg.eigvalsh(x.detach() + x.detach().t()) <= 0).any()):
            raise RuntimeError("expected a positive definite matrix")
        return bent(torch.logdet, lambda g: 2 * g)(x)

    matrix = normal(4, 4) @ normal(4, 4).t() + torch.eye(4, dtype=DOUBLE)
    here = problem(positive_definite, matrix)
    seen = Comparison(verdict=Verdict.DIFFER, method="probe", wrong_pairs=((0, 0),))
    assert triage(here, seen, SETTINGS).verdict is TriageVerdict.WRONG_GRADIENT
