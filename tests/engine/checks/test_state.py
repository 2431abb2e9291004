"""Whatever user code does, and wherever it stops, the process is left as it was found."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from engine.checks.wrong import real, rule
from torch import Tensor

from gradbot.engine.api import check
from gradbot.engine.isolation import preserved
from gradbot.model import CaseResult, Outcome


def state() -> dict[str, Any]:
    return {
        "torch": torch.get_rng_state().tolist(),
        "python": random.getstate(),
        "numpy": str(np.random.get_state()),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "filters": list(warnings.filters),
    }


def vandal(x: Tensor) -> None:
    """Changes all there is to change."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(3)
    torch.use_deterministic_algorithms(True)
    torch.autograd.set_detect_anomaly(True)
    torch.set_autocast_enabled("cpu", True)
    warnings.simplefilter("ignore")
    x.data.mul_(1.5)


class Stops:
    """x.sin() that spoils everything and raises at its k-th call; counts its calls."""

    def __init__(self, at: int, error: type[BaseException] = RuntimeError) -> None:
        self.at, self.error, self.calls = at, error, 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.at:
            vandal(x)
            raise self.error("stopped")
        return x.sin()


def watched(func: Stops, x: Tensor) -> CaseResult:
    """The check of a function that counts its calls: as many on any machine, for no repeat depends on the time."""
    return check(func, (x,), determinism_seconds=0.0)


def calls_in_all() -> int:
    counting = Stops(at=0)
    watched(counting, real(2))
    return counting.calls


CALLS = calls_in_all()
PLACES = sorted({1, 2, 3, 4, 5, CALLS, *range(6, CALLS, max(1, CALLS // 25))})


@pytest.mark.parametrize("at", PLACES)
def test_an_exception_at_any_evaluation_leaves_everything_as_it_was(at: int) -> None:
    x = real(2)
    values, before = x.detach().clone(), state()
    watched(Stops(at), x)
    assert state() == before
    assert torch.equal(x.detach(), values)
    assert (x.requires_grad, x.grad) == (True, None)


@pytest.mark.parametrize("at", PLACES[:: max(1, len(PLACES) // 8)])
def test_an_interrupt_gets_through_and_leaves_everything_as_it_was(at: int) -> None:
    x = real(2)
    values, before = x.detach().clone(), state()
    with pytest.raises(KeyboardInterrupt):
        watched(Stops(at, KeyboardInterrupt), x)
    assert state() == before
    assert torch.equal(x.detach(), values)


def test_an_exception_is_never_a_wrong_gradient() -> None:
    for at in PLACES:
        case = watched(Stops(at), real(2))
        wrong = [each.kind for result in case.checks for each in result.findings if "mismatch" in each.kind]
        assert wrong == [], at


def test_a_backward_that_spoils_everything_is_undone() -> None:
    def backward(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        result = g * x.cos()
        vandal(x)
        return result

    x = real(2)
    values, before = x.detach().clone(), state()
    case = check(rule(torch.sin, backward).apply, (x,))
    assert case.outcome is Outcome.FAILED
    assert state() == before
    assert torch.equal(x.detach(), values)


@pytest.mark.parametrize(
    "func", [torch.nn.functional.dropout, lambda x: x + torch.rand_like(x), lambda x: x * random.random()]
)
def test_random_functions_leave_the_generators_as_they_were(func: Callable[..., Any]) -> None:
    before = state()
    check(func, (real(5),))
    assert state() == before


def test_parameters_buffers_and_accumulated_grads_are_as_they_were() -> None:
    module = torch.nn.BatchNorm1d(3).double()
    module(real(4, 3)).sum().backward()
    kept = {name: each.clone() for name, each in module.state_dict().items()}
    assert module.weight.grad is not None
    grad = module.weight.grad.clone()
    check(module, (real(4, 3),))
    assert all(torch.equal(each, kept[name]) for name, each in module.state_dict().items())
    assert torch.equal(module.weight.grad, grad)


def test_tensors_that_do_not_require_grad_are_as_they_were() -> None:
    workspace = torch.zeros(3, dtype=torch.float64)

    def writes(x: Tensor, out: Tensor) -> Tensor:
        out.add_(x.detach())
        return x.sin() + out.sum() * 0

    check(writes, (real(3), workspace))
    assert torch.equal(workspace, torch.zeros(3, dtype=torch.float64))


def test_preserved_restores_sparse_tensors() -> None:
    sparse = torch.eye(3).to_sparse()
    with preserved([sparse]):
        sparse.mul_(5)
    assert torch.equal(sparse.to_dense(), torch.eye(3))


def test_results_do_not_depend_on_the_global_generator() -> None:
    x = real(3)
    torch.manual_seed(1)
    one = check(torch.nn.functional.dropout, (x,))
    torch.manual_seed(2)
    other = check(torch.nn.functional.dropout, (x,))
    assert [each.outcome for each in one.checks] == [each.outcome for each in other.checks]
    # how often determinism repeats is a matter of time
    shown = [[each.evidence for each in case.checks if each.check != "determinism"] for case in (one, other)]
    assert shown[0] == shown[1]
