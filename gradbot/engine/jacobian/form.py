"""Form a Jacobian in full: batched where that works and one unbatched evaluation confirms it, else one by one.

Batching (vmap) computes something else than the loop where a batching rule or a custom `vmap` staticmethod is wrong,
or where a function mixes what it should keep apart. So nothing that was batched is believed by itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradbot.engine.jacobian import forward, numerical, reverse
from gradbot.engine.jacobian.numerical import Differences
from gradbot.engine.jacobian.point import Array, OutputsChangedError, Point
from gradbot.engine.jacobian.tolerances import Tolerances

_STACK_BYTES = 1 << 26
_LARGE = 16.0
_FEW = 4
"""Up to so many evaluations a loop is cheaper than setting up a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analytical:
    """The analytical Jacobian, (rows, columns). `linear`: a random combination of rows agrees with its own vjp."""

    jacobian: Array
    batched: bool
    linear: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many bytes a stack may take, and how many evaluations one by one are worth it (None: any number)."""

    stack_bytes: int = _STACK_BYTES
    loop: int | None = None

    def allow_loop(self, count: int) -> bool:
        """Whether so many evaluations may be made one by one."""
        return self.loop is None or count <= self.loop


def signed_uniform(generator: np.random.Generator, shape: int | tuple[int, ...]) -> Array:
    """sign * U[0.5, 1.5]: unlike draws of equal magnitude these miss no structured error."""
    draws = generator.random(shape)
    draws *= 2
    draws -= 1
    return draws + np.copysign(0.5, draws)


def form_numerical(
    point: Point, step: float, generator: np.random.Generator, limits: Limits
) -> tuple[Differences, bool] | None:
    """Central differences of all columns and whether they were batched; None where only too long a loop would do."""
    columns = range(point.position.size)
    if len(columns) > _FEW:
        try:
            stacked = _stacked_differences(point, step, limits)
        except OutputsChangedError:
            raise
        except Exception:  # noqa: BLE001 - batched user code may raise anything, and is then run unbatched
            stacked = None
        if stacked is not None and _confirmed(point, stacked, step, generator):
            return stacked, True
        if not limits.allow_loop(2 * len(columns)):
            return None
    return numerical.by_loop(point, columns, step), False


def _stacked_differences(point: Point, step: float, limits: Limits) -> Differences:
    columns = range(point.position.size)
    size = max(1, limits.stack_bytes // (16 * (point.position.size + point.value.size)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about slow batching rules; the user did not ask for batching
        parts = [
            numerical.by_stack(point, columns[start : start + size], step) for start in range(0, len(columns), size)
        ]
    if len(parts) == 1:
        return parts[0]
    return Differences(
        estimate=np.concatenate([each.estimate for each in parts], 1),
        noise=np.concatenate([each.noise for each in parts], 1),
        bent=any(each.bent for each in parts),
    )


def _confirmed(point: Point, differences: Differences, step: float, generator: np.random.Generator) -> bool:
    direction = signed_uniform(generator, point.position.size)
    with np.errstate(all="ignore"):
        difference = point.values_at(point.position + step * direction)
        difference -= point.values_at(point.position - step * direction)
        difference /= 2 * step
        expected = differences.estimate @ direction
        size = np.abs(differences.estimate) @ np.abs(direction)
        noise = 2 * differences.noise.max(1, initial=0.0)
        near = np.abs(difference - expected) <= 1e-4 * (1 + size) + noise
    return bool((near | ~np.isfinite(expected)).all())


def form_analytical(
    point: Point, direction: str, generator: np.random.Generator, tolerances: Tolerances, limits: Limits
) -> Analytical | None:
    """The Jacobian that autograd gives, by vjps or jvps; None where only too long a loop would do.

    Rows come from unit cotangents. Whether a random cotangent agrees is told as `linear`.
    """
    one: Callable[[Point, Array], Array]
    many: Callable[[Point, Array], Array]
    if direction == "forward":
        one, many, count = forward.push_forward, forward.push_forward_stack, point.position.size
    else:
        one, many, count = reverse.pull_back, reverse.pull_back_stack, point.value.size
    # units are positive and small: a backward that is linear for those only shows in others
    combination = -_LARGE * np.abs(signed_uniform(generator, count))
    together = one(point, combination)
    if count > _FEW:
        try:
            stack = _in_stacks(point, many, count, limits)
        except Exception:  # noqa: BLE001 - batched user code may raise anything, and is then run unbatched
            stack = None
        if stack is not None and _agree(combination, stack, together, 1e-7, 1e-9):
            return Analytical(jacobian=stack.T if direction == "forward" else stack, batched=True)
        if not limits.allow_loop(count):
            return None
    stack = np.empty((count, together.size))
    for index in range(count):
        unit = np.zeros(count)
        unit[index] = 1.0
        stack[index] = one(point, unit)
    linear = _agree(combination, stack, together, tolerances.rtol, tolerances.atol)
    return Analytical(jacobian=stack.T if direction == "forward" else stack, batched=False, linear=linear)


def _in_stacks(point: Point, many: Callable[[Point, Array], Array], count: int, limits: Limits) -> Array:
    size = max(1, limits.stack_bytes // (8 * (point.position.size + point.value.size)))
    parts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about slow batching rules; the user did not ask for batching
        for start in range(0, count, size):
            units = np.zeros((min(size, count - start), count))
            np.fill_diagonal(units[:, start:], 1.0)
            parts.append(many(point, units))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _agree(combination: Array, stack: Array, together: Array, rtol: float, atol: float) -> bool:
    with np.errstate(all="ignore"):
        size = np.abs(combination) @ np.abs(stack)
        expected = combination @ stack
        near = np.abs(expected - together) <= rtol * size + atol * np.abs(combination).sum()
    return bool((near | (~np.isfinite(expected) & ~np.isfinite(together))).all())
