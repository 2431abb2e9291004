"""Inputs for Functions of public packages, as a user of them would declare them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from entmax.activations import Entmax15Function, SparsemaxFunction
from entmax.losses import Entmax15LossFunction, SparsemaxLossFunction
from entmax.root_finding import (
    BudgetBisectFunction,
    EntmaxBisectFunction,
    NormmaxBisectFunction,
    SparsemaxBisectFunction,
)
from roma.mappings import _ProcrustesManualDerivatives, _ProcrustesRegularization
from torch import Tensor
from zuko.utils import Bisection, GaussLegendre

import gradbot


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def uniform(*shape: int, low: float, high: float) -> Tensor:
    return (low + (high - low) * torch.rand(*shape, dtype=torch.float64)).requires_grad_()


@gradbot.cases(SparsemaxFunction)
def sparsemax() -> Iterator[gradbot.Sample]:
    yield gradbot.Sample(normal(3, 5), -1, None)
    yield gradbot.Sample(normal(3, 6), -1, 2).named("top-2")


@gradbot.cases(Entmax15Function, skip_checks=["double_backward", "forward_over_backward"])
def entmax15() -> Iterator[gradbot.Sample]:
    yield gradbot.Sample(normal(3, 5), -1, None)


@gradbot.cases(SparsemaxBisectFunction)
def sparsemax_bisect() -> Iterator[gradbot.Sample]:
    yield gradbot.Sample(normal(3, 5), -1, 50, True)


@gradbot.cases(EntmaxBisectFunction)
def entmax_bisect() -> Iterator[gradbot.Sample]:
    yield gradbot.Sample(normal(3, 5), uniform(3, 1, low=1.3, high=1.9), -1, 50, True)


@gradbot.cases(NormmaxBisectFunction)
def normmax_bisect() -> Iterator[gradbot.Sample]:
    yield gradbot.Sample(normal(3, 5), 2, -1, 50).named("number")
    yield gradbot.Sample(normal(3, 5), uniform(3, 1, low=1.5, high=2.5), -1, 50).named("tensor-alpha")


@gradbot.cases(BudgetBisectFunction)
def budget_bisect() -> Iterator[gradbot.Sample]:
    yield gradbot.Sample(normal(3, 5), 2, -1, 50).named("number")
    yield gradbot.Sample(normal(3, 5), uniform(3, 1, low=1.5, high=2.5), -1, 50).named("tensor-budget")


@gradbot.cases(Entmax15LossFunction)
@gradbot.cases(SparsemaxLossFunction)
def losses() -> Iterator[gradbot.Sample]:
    yield gradbot.Sample(normal(3, 5), torch.tensor([0, 2, 4]), None)


@gradbot.cases(_ProcrustesManualDerivatives)
def procrustes() -> Iterator[gradbot.Sample]:
    yield gradbot.Sample(normal(2, 3, 3), True, 1e-5)


@gradbot.cases(_ProcrustesRegularization, expect="scaled", reason="adds a term that is a regularisation, on purpose")
def regularization() -> Iterator[gradbot.Sample]:
    yield gradbot.Sample(normal(2, 3, 3), normal(2, 3, 3), 0.1)


def cubic(y: Tensor, p: Tensor) -> Tensor:
    return Bisection.apply(lambda x: p * x + x**3, y, torch.full_like(y, -10.0), torch.full_like(y, 10.0), 60, p)


def integral(a: Tensor, b: Tensor, p: Tensor) -> Tensor:
    return GaussLegendre.apply(lambda x: torch.sin(p * x), a, b, 20, p)


@gradbot.cases(cubic)
def bisection() -> Iterator[gradbot.Sample]:
    yield gradbot.Sample(normal(4), uniform(4, low=0.5, high=2.0))


@gradbot.cases(integral)
def gauss_legendre() -> Iterator[gradbot.Sample]:
    yield gradbot.Sample(normal(4), normal(4), normal(4))
