"""Many vjps, jvps or evaluations in one batch where that gives what they give one by one, else one by one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from gradbot.engine.jacobian import forward, numerical, reverse
from gradbot.engine.jacobian.numerical import Differences
from gradbot.engine.jacobian.point import Array, OutputsChangedError, Point

Differentiate = Callable[[Sequence[int]], Differences]
Apply = Callable[[Array], Array]
_COPIES = 40
_ENOUGH = 1 << 28  # larger batches are not faster
_A = TypeVar("_A")
_R = TypeVar("_R")


def differences_of(point: Point, step: float) -> Differentiate:
    """Central differences of any columns, batched where two columns come out as they do alone."""

    def one_by_one(columns: Sequence[int]) -> Differences:
        return numerical.by_loop(point, columns, step)

    def together(columns: Sequence[int]) -> Differences:
        return numerical.by_stack(point, columns, step)

    sample = sorted({0, point.position.size // 2}) if point.position.size else []
    with np.errstate(all="ignore"):
        if not sample or not _same(lambda: together(sample).estimate, lambda: one_by_one(sample).estimate, 1e-6):
            return one_by_one
    return _falling_back(together, one_by_one)


def derivatives_of(point: Point, direction: str) -> Apply:
    """Vjps of stacked cotangents, or jvps of stacked tangents, batched where two come out as they do alone."""
    if direction == "forward":
        size = point.position.size
        return _choose(
            size,
            lambda units: forward.push_forward_stack(point, units),
            lambda units: np.stack([forward.push_forward(point, each) for each in units]),
        )
    return _choose(
        point.value.size,
        lambda units: reverse.pull_back_stack(point, units),
        lambda units: np.stack([reverse.pull_back(point, each) for each in units]),
    )


def stack_size(point: Point, budget: int) -> int:
    """How many vectors go into one batch: what f needs for one it needs for each, some forty times its own size."""
    return max(1, min(budget, _ENOUGH) // (8 * _COPIES * max(point.position.size + point.value.size, 1)))


def units(indices: range, size: int) -> Array:
    """Unit vectors, (indices, size)."""
    vectors = np.zeros((len(indices), size))
    np.fill_diagonal(vectors[:, indices.start :], 1.0)
    return vectors


def _choose(size: int, together: Apply, one_by_one: Apply) -> Apply:
    if not size:
        return one_by_one
    sample = np.cos(np.arange(2.0 * size).reshape(2, size))
    if not _same(lambda: together(sample), lambda: one_by_one(sample), 1e-9):
        return one_by_one
    return _falling_back(together, one_by_one)


def _same(together: Callable[[], Array], one_by_one: Callable[[], Array], share: float) -> bool:
    expected = one_by_one()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about slow batching rules; the user did not ask for batching
            found = together()
    except OutputsChangedError:
        raise
    except Exception:  # noqa: BLE001 - batched user code may raise anything, and is then run unbatched
        return False
    scale = float(np.nan_to_num(np.abs(expected)).max(initial=0.0))
    return bool(np.allclose(found, expected, share, share * (scale + 1e-3), equal_nan=True))


def _falling_back(together: Callable[[_A], _R], one_by_one: Callable[[_A], _R]) -> Callable[[_A], _R]:
    def either(argument: _A) -> _R:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return together(argument)
        except (RuntimeError, MemoryError):
            return one_by_one(argument)

    return either
