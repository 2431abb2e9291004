"""A suite can swap `from torch.autograd import gradcheck` for `from gradbot import gradcheck`."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

import gradbot

torchs = importlib.import_module("torch.autograd.gradcheck")

FUNCTIONS = [
    "gradcheck",
    "gradgradcheck",
    "get_numerical_jacobian",
    "get_analytical_jacobian",
    "get_numerical_jacobian_wrt_specific_input",
]


def parameters(function):
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_keyword_and_default_is_torchs(name):
    assert parameters(getattr(gradbot, name)) == parameters(getattr(torchs, name))


def test_the_error_is_caught_where_torchs_is():
    assert issubclass(gradbot.GradcheckError, torchs.GradcheckError)
    assert gradbot.GradcheckError.__name__ == "GradcheckError"


def test_all_names_that_torch_exports_are_there():
    assert set(torchs.__all__) <= set(gradbot.__all__)


def test_a_pass_returns_true():
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)

    assert gradbot.gradcheck(torch.sin, x) is True
    assert gradbot.gradgradcheck(torch.sin, [x]) is True
