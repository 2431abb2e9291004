"""What torch's own gradient checks say, and how long things take: the other side of every table."""

from __future__ import annotations

import contextlib
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from benchmarks.opinfo_cases import problem_of
from torch import Tensor

from gradbot.engine.compare import compare_at
from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.jacobian.point import Point, look
from gradbot.engine.jacobian.reverse import pull_back
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings, Mode


class TooLongError(BaseException):
    """Not an `Exception`, so that nothing that guards user code swallows it."""


class TerminatedError(BaseException):
    """The benchmark was asked to stop, and prints what it has."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises `TooLongError` inside after so many seconds."""

    def stop(*_: Any) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def quiet() -> None:
    """One thread, no warnings: what is measured is the checks. SIGTERM raises `TerminatedError`."""

    def stop(*_: Any) -> None:
        raise TerminatedError

    signal.signal(signal.SIGTERM, stop)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")


def torch_passes(
    func: Callable[..., Any],
    inputs: tuple[Tensor, ...],
    *,
    order: str,
    fast: bool,
    nondet_tol: float = 0.0,
    seconds: float = 20.0,
) -> bool | None:
    """Whether torch's check of an order passes: "1", "2" or "forward"; None where it takes longer than `seconds`."""
    try:
        with at_most(seconds):
            return bool(torch_check(func, inputs, order=order, fast=fast, nondet_tol=nondet_tol))
    except TooLongError:
        return None
    except Exception:
        return False


def torch_check(
    func: Callable[..., Any], inputs: tuple[Tensor, ...], *, order: str, fast: bool, nondet_tol: float = 0.0
) -> bool:
    """torch's check of the Jacobian, with its tests of reentrancy and of zero cotangents."""
    if order == "2":
        passed: bool = torch.autograd.gradgradcheck(
            func, inputs, nondet_tol=nondet_tol, fast_mode=fast, check_undefined_grad=False, raise_exception=False
        )
        return passed
    passed = torch.autograd.gradcheck(
        func,
        inputs,
        nondet_tol=nondet_tol,
        fast_mode=fast,
        check_undefined_grad=False,
        check_forward_ad=order == "forward",
        check_backward_ad=order != "forward",
        raise_exception=False,
    )
    return passed


def changes_gradients(func: Callable[..., Any], faulty: Callable[..., Any], inputs: tuple[Tensor, ...]) -> bool:
    """Whether a fault changes what one cotangent of mixed magnitudes gives, well beyond the tolerances."""
    right, wrong = look(problem_of(func, inputs)), look(problem_of(faulty, inputs))
    cotangent = torch.linspace(-1.5, 1.4, right.value.size, dtype=torch.float64).numpy()
    expected, found = pull_back(right, cotangent), pull_back(wrong, cotangent)
    return bool((abs(found - expected) > 1e-4 + 1e-2 * abs(expected)).any())


def gradbot_check(
    subject: Problem | Point, *, mode: Mode, order: str = "1", seed: int = 0, side_checks: bool = True
) -> Comparison:
    """The engine's comparison and, as torch's check has them, a repeated vjp and one of zero cotangents."""
    point = subject if isinstance(subject, Point) else look(subject)
    comparison = compare_at(
        point, direction="forward" if order == "forward" else "reverse", settings=CheckSettings(mode=mode), seed=seed
    )
    if side_checks and order != "forward":
        first, again = pull_back(point, point.value), pull_back(point, point.value)
        zero = pull_back(point, 0 * point.value)
        if abs(zero).max(initial=0.0) > 0 or abs(first - again).max(initial=0.0) > 0:
            return replace(comparison, verdict=Verdict.DIFFER)
    return comparison


def paired_times(*actions: Callable[[], Any], seconds: float = 0.25, most: int = 15) -> list[float]:
    """The least processor time of each action in seconds; they run in turns, and what else runs counts little."""
    times: list[list[float]] = [[] for _ in actions]
    until = time.process_time() + seconds
    while len(times[0]) < 2 or (time.process_time() < until and len(times[0]) < most):
        for action, taken in zip(actions, times, strict=True):
            start = time.process_time()
            action()
            taken.append(time.process_time() - start)
        if sum(each[-1] for each in times) > 4 * seconds:
            break
    return [min(each) for each in times]
