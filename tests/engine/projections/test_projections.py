"""Constrained inputs stay on their set under any step; arbitrary choices of an output do not count."""

from __future__ import annotations

import pytest
import torch
from engine.bent import custom, normal

import gradbot
from gradbot.engine import projections
from gradbot.model import Outcome

MATRIX = normal(4, 4)
SPD = MATRIX @ MATRIX.t() + torch.eye(4, dtype=torch.float64)

ON_THE_SET = {
    "symmetric": SPD,
    "spd": SPD,
    "lower_triangular": MATRIX.tril(),
    "upper_triangular": MATRIX.triu(),
    "simplex": MATRIX.softmax(-1),
    "log_probabilities": MATRIX.log_softmax(-1),
    "unit_norm": MATRIX / MATRIX.norm(dim=-1, keepdim=True),
    "positive": MATRIX.abs(),
}


@pytest.mark.parametrize("name", ON_THE_SET)
def test_a_projection_leaves_its_set_alone(name):
    torch.testing.assert_close(getattr(projections, name)(ON_THE_SET[name]), ON_THE_SET[name])


@pytest.mark.parametrize("name", ON_THE_SET)
def test_a_projection_is_differentiable_and_reaches_its_set_from_anywhere(name):
    project = getattr(projections, name)
    assert gradbot.check(project, (MATRIX,), checks=["backward"]).outcome is Outcome.PASSED
    torch.testing.assert_close(project(project(MATRIX)), project(MATRIX))


def test_an_indefinite_matrix_becomes_positive_definite():
    assert float(torch.linalg.eigvalsh(projections.spd(MATRIX)).min()) > 0


def backward(func, *inputs, **options):
    return gradbot.check(func, inputs, checks=["backward"], **options).checks[0]


def half_cholesky(matrix):
    """Cholesky that reads the lower triangle only, as LAPACK does."""
    return torch.linalg.cholesky(matrix.tril() + matrix.tril(-1).t())


def test_a_function_of_symmetric_matrices_is_right_on_its_set():
    symmetrised = custom(
        lambda a: torch.logdet(a.tril() + a.tril(-1).t()),
        lambda g, a: g * torch.linalg.inv(a.tril() + a.tril(-1).t()).mT,
    )
    assert backward(symmetrised, SPD).outcome is Outcome.FAILED
    assert backward(symmetrised, SPD, projection=projections.symmetric).outcome is Outcome.PASSED


def test_a_wrong_function_of_symmetric_matrices_stays_wrong_on_its_set():
    wrong = custom(torch.logdet, lambda g, a: 2 * g * torch.linalg.inv(a).mT)
    assert backward(wrong, SPD, projection=projections.symmetric).outcome is Outcome.FAILED


def flipped_eigenvectors(matrix):
    vectors = torch.linalg.eigh(projections.symmetric(matrix)).eigenvectors
    # A sign that depends on where one stands, as solvers choose them.
    signs = torch.where(torch.sin(1e7 * matrix.detach().sum()) > 0, 1.0, -1.0)
    return vectors * signs


def test_eigenvectors_are_right_up_to_their_sign():
    assert backward(flipped_eigenvectors, SPD, invariant=projections.without_sign).outcome is Outcome.PASSED


def test_a_span_does_not_depend_on_its_basis():
    basis, _ = torch.linalg.qr(normal(5, 2))
    rotation, _ = torch.linalg.qr(normal(2, 2, seed=3))
    torch.testing.assert_close(projections.span(basis), projections.span(basis @ rotation))
