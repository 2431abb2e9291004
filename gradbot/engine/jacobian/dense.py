"""Both Jacobians in full, compared entry by entry."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from gradbot.engine.comparison import Block, Comparison, Verdict
from gradbot.engine.jacobian.bars import median
from gradbot.engine.jacobian.form import Limits, form_analytical, form_numerical
from gradbot.engine.jacobian.joint import contradicted_pairs
from gradbot.engine.jacobian.numerical import Differences
from gradbot.engine.jacobian.point import Array, Point
from gradbot.engine.jacobian.refine import refine
from gradbot.engine.jacobian.singular import singular_rows
from gradbot.engine.jacobian.tolerances import Tolerances

_SAMPLE = 8
"""How many columns that are clearly wrong are looked at again before the rest is believed."""
_SHOWN, _NEGLIGIBLE = 1e-5, 1e-9
"""The smallest error that is called real, relative to its entry and to the largest one of the Jacobian; below lies
what backward formulas lose by rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """What is compared, each (rows, columns). `refined` are columns that were measured at several steps."""

    analytical: Array
    numerical: Array
    error_bar: Array
    tolerance: Array
    refined: NDArray[np.bool_]


def compare_dense(
    point: Point, direction: str, tolerances: Tolerances, generator: np.random.Generator, limits: Limits
) -> Comparison | None:
    """The verdict from the full Jacobians; None where only too long a loop would form them."""
    formed = form_numerical(point, tolerances.eps, generator, limits)
    if formed is None:
        return None
    analytical = form_analytical(point, direction, generator, tolerances, limits)
    if analytical is None:
        return None
    differences, batched = formed
    method = "dense vmap" if batched or analytical.batched else "dense"
    matrices = settle(point, analytical.jacobian, differences, tolerances)
    comparison = conclude(point, matrices, method, linear=analytical.linear)
    if comparison.verdict is Verdict.AGREE and differences.bent:
        pairs = contradicted_pairs(point, matrices.analytical, tolerances)
        return replace(comparison, verdict=Verdict.DIFFER, wrong_pairs=pairs) if pairs else comparison
    return comparison


def settle(point: Point, analytical: Array, differences: Differences, tolerances: Tolerances) -> Matrices:
    """Look again, over several steps, at the columns that differ or whose noise is wider than the tolerance."""
    numerical, bar = differences.estimate, differences.noise
    with np.errstate(all="ignore"):
        tolerance = tolerances.allowed(numerical)
        error = np.abs(analytical - numerical)
        alike = error <= tolerance
        exact = analytical == numerical  # mostly rows that do not depend on the column at all
        alike |= exact
        coarse = ~(bar <= tolerance) & ~exact
        suspicious = _suspicious(numerical, error, bar)
        refined = np.zeros(analytical.shape[1], dtype=np.bool_)
        if not (suspicious is None and alike.all() and not coarse.any()):
            clear = np.any(~alike & ~coarse & (error > tolerance + bar), axis=0)
            doubtful = np.any(~alike | coarse, axis=0) & ~clear
            if suspicious is not None and not clear[suspicious]:
                doubtful[suspicious] = True
            first, first_bar = numerical, bar
            numerical, bar = numerical.copy(), bar.copy()
            refined = _look_again(point, analytical, numerical, bar, clear, doubtful, tolerances)
            # a wider step may cross what the first did not: what was fine and agreed is not overruled by it
            overruled = np.abs(analytical - numerical) > tolerances.allowed(numerical) + bar
            overruled &= alike & ~coarse
            numerical[overruled], bar[overruled] = first[overruled], first_bar[overruled]
            tolerance = tolerances.allowed(numerical)
    return Matrices(analytical=analytical, numerical=numerical, error_bar=bar, tolerance=tolerance, refined=refined)


def _look_again(
    point: Point,
    analytical: Array,
    numerical: Array,
    bar: Array,
    clear: NDArray[np.bool_],
    doubtful: NDArray[np.bool_],
    tolerances: Tolerances,
) -> NDArray[np.bool_]:
    """Put refined columns into `numerical` and `bar`. Of clearly wrong ones a sample is enough if it is confirmed.

    Returns which columns were refined.
    """
    wrong = np.flatnonzero(clear)
    sample = wrong[:: -(-len(wrong) // _SAMPLE)] if len(wrong) else wrong
    confirmed = _put(point, analytical, numerical, bar, sample, tolerances)
    refined = doubtful.copy()
    refined[sample] = True
    if not confirmed:
        refined |= clear
        _put(point, analytical, numerical, bar, np.setdiff1d(wrong, sample), tolerances)
    _put(point, analytical, numerical, bar, np.flatnonzero(doubtful), tolerances)
    return refined


def _put(
    point: Point,
    analytical: Array,
    numerical: Array,
    bar: Array,
    columns: NDArray[np.intp],
    tolerances: Tolerances,
) -> bool:
    """Refine these columns; whether each is still wrong somewhere."""
    if not len(columns):
        return True
    refined = refine(point, columns.tolist(), analytical[:, columns], tolerances)
    error, allowed = np.abs(analytical[:, columns] - refined.estimate), tolerances.allowed(refined.estimate)
    # what only one step calls wrong is not known well enough to call it so
    lone = (error > allowed + refined.error_bar) & ~refined.confirmed & np.isfinite(error)
    refined_bar = np.where(lone, error, refined.error_bar)
    undecided = ~(error + refined_bar <= allowed) & ~refined.confirmed & np.isfinite(refined_bar)
    for index in np.flatnonzero(undecided.any(0)):
        # at a kink or a jump the first difference quotient stands as it is: what it means is for others to say
        undecided[:, index] &= singular_rows(point, int(columns[index]), tolerances.eps)
    numerical[:, columns] = np.where(undecided, numerical[:, columns], refined.estimate)
    bar[:, columns] = np.where(undecided, bar[:, columns], refined_bar)
    return bool(refined.confirmed.any(0).all())


def _suspicious(numerical: Array, error: Array, bar: Array) -> int | None:
    """The column with the largest relative error that looks real, whether or not it is allowed."""
    size = np.abs(numerical)
    real = error > np.maximum(_SHOWN * size, _NEGLIGIBLE * _finite_max(size))
    real &= error > 4 * bar
    if not real.any():
        return None
    relative = np.where(real, error / np.abs(numerical), 0.0)
    return int(np.nan_to_num(relative.max(0)).argmax())


def conclude(point: Point, matrices: Matrices, method: str, *, linear: bool = True) -> Comparison:
    """The verdict that the matrices give."""
    blocks = _blocks(point, matrices)
    with np.errstate(all="ignore"):
        error = np.abs(matrices.analytical - matrices.numerical)
        same = matrices.analytical == matrices.numerical
        wrong = _wrong_pairs(point, matrices, error, same)
        if not linear:
            wrong = wrong or tuple((block.output, block.input) for block in blocks)
        verdict, reason = (Verdict.DIFFER, "") if wrong else _sure_or_not(matrices, error, same)
        return Comparison(
            verdict=verdict,
            method=method,
            wrong_pairs=wrong,
            blocks=blocks,
            resolution=_resolution(matrices),
            coverage=1.0,
            reason=reason,
            largest_relative_error=_largest_real_error(matrices, error),
            linear=linear,
        )


def _wrong_pairs(
    point: Point, matrices: Matrices, error: Array, same: NDArray[np.bool_]
) -> tuple[tuple[int, int], ...]:
    both_nan = np.isnan(matrices.analytical) & np.isnan(matrices.numerical)
    unknown = np.isinf(matrices.error_bar)
    wrong = ~((error <= matrices.tolerance + matrices.error_bar) | same | both_nan | unknown)
    # beside an infinite derivative, zero times infinity is no error of the backward
    wrong &= ~(~np.isfinite(matrices.analytical) & np.any(unknown, axis=0))
    if not wrong.any():
        return ()
    return tuple(
        (output, each)
        for output, rows in enumerate(point.row_slices)
        for each, columns in enumerate(point.column_slices)
        if wrong[rows, columns].any()
    )


def _sure_or_not(matrices: Matrices, error: Array, same: NDArray[np.bool_]) -> tuple[Verdict, str]:
    unknown = ~same & ~(np.isfinite(matrices.numerical) & np.isfinite(matrices.analytical))
    if unknown.any():
        return Verdict.UNSURE, "domain"
    loose = matrices.error_bar > np.maximum(matrices.tolerance, 0.02 * np.abs(matrices.numerical))
    doubtful = ~same & ((error > matrices.tolerance) | loose)
    return (Verdict.UNSURE, "precision") if doubtful.any() else (Verdict.AGREE, "")


def _largest_real_error(matrices: Matrices, error: Array) -> float:
    largest = np.maximum(np.abs(matrices.numerical), np.abs(matrices.analytical))
    real = error > np.maximum(_SHOWN * largest, _NEGLIGIBLE * _finite_max(largest))
    real &= error > 2 * matrices.error_bar
    real &= error <= matrices.tolerance
    real &= matrices.refined
    return float((error[real] / largest[real]).max()) if real.any() else 0.0


def _finite_max(sizes: Array) -> float:
    largest = float(sizes.max(initial=0.0))
    return largest if np.isfinite(largest) else float(sizes[np.isfinite(sizes)].max(initial=0.0))


def _resolution(matrices: Matrices) -> float | None:
    with np.errstate(all="ignore"):
        shares = (matrices.error_bar / np.abs(matrices.numerical)).reshape(-1)
    shares = shares[np.isfinite(shares)]
    return median(shares) if shares.size else None


def _blocks(point: Point, matrices: Matrices) -> tuple[Block, ...]:
    whole = [
        torch.from_numpy(np.ascontiguousarray(each))
        for each in (matrices.analytical, matrices.numerical, matrices.error_bar, matrices.tolerance)
    ]
    blocks = []
    for output, rows in enumerate(point.row_slices):
        for each, columns in enumerate(point.column_slices):
            analytical, numerical, error_bar, tolerance = (matrix[rows, columns] for matrix in whole)
            blocks.append(
                Block(
                    output=output,
                    input=each,
                    analytical=analytical,
                    numerical=numerical,
                    error_bar=error_bar,
                    tolerance=tolerance,
                )
            )
    return tuple(blocks)
