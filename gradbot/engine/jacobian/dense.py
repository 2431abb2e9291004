"""Both Jacobians in full, compared entry by entry."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradbot.engine.comparison import Block, Comparison, Verdict
from gradbot.engine.jacobian import jvp, loop, vjp
from gradbot.engine.jacobian.point import Point
from gradbot.engine.jacobian.refine import refine

_SAMPLE = 32
"""How many columns that are clearly wrong are looked at again before the rest is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """What is allowed, entry by entry: |A - N| <= atol + rtol |N|; `eps` is the first step."""

    eps: float
    atol: float
    rtol: float

    def allowed(self, numerical: Tensor) -> Tensor:
        """The allowed error of each entry. Where the numerical one is not finite only `atol` counts."""
        return self.atol + self.rtol * numerical.nan_to_num(0.0, 0.0, 0.0).abs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """What is compared, each (rows, columns)."""

    analytical: Tensor
    numerical: Tensor
    error_bar: Tensor
    tolerance: Tensor


def compare_dense(point: Point, direction: str, tolerances: Tolerances) -> Comparison:
    """The verdict from the full Jacobians, formed by loops."""
    all_rows, all_columns = range(point.value.numel()), range(point.position.numel())
    analytical = vjp.rows(point, all_rows) if direction == "reverse" else jvp.columns(point, all_columns)
    numerical, noise = loop.columns(point, all_columns, tolerances.eps)
    return conclude(point, settle(point, analytical, numerical, noise, tolerances), "dense")


def settle(point: Point, analytical: Tensor, numerical: Tensor, noise: Tensor, tolerances: Tolerances) -> Matrices:
    """Look again, over several steps, at the columns that differ or whose noise is wider than the tolerance."""
    tolerance = tolerances.allowed(numerical)
    error = (analytical - numerical).abs()
    alike = (error <= tolerance) | (analytical == numerical) | (analytical.isnan() & numerical.isnan())
    coarse = ~(noise <= tolerance)
    clear = (~alike & (error > tolerance + noise) & ~coarse).any(0)
    doubtful = ((~alike | coarse).any(0) & ~clear) | _suspicious(analytical, numerical, noise, alike)
    numerical, noise = numerical.clone(), noise.clone()

    def look_again(which: list[int]) -> bool:
        refined = refine(point, which, analytical[:, which], tolerances.allowed(numerical[:, which]), tolerances.eps)
        before = ~(alike[:, which]) & ~coarse[:, which]
        numerical[:, which] = refined.estimate
        unconfirmed = (analytical[:, which] - refined.estimate).abs()
        allowed = tolerances.allowed(refined.estimate)
        lone = (unconfirmed > allowed + refined.error_bar) & ~refined.confirmed
        noise[:, which] = torch.where(lone, unconfirmed, refined.error_bar)
        return bool((refined.confirmed | ~before).all())

    sample = _spread(clear.nonzero().reshape(-1).tolist(), _SAMPLE)
    if sample and not look_again(sample):
        rest = clear.clone()
        rest[sample] = False
        look_again(rest.nonzero().reshape(-1).tolist())
    look_again(doubtful.nonzero().reshape(-1).tolist())
    return Matrices(
        analytical=analytical, numerical=numerical, error_bar=noise, tolerance=tolerances.allowed(numerical)
    )


def _suspicious(analytical: Tensor, numerical: Tensor, noise: Tensor, alike: Tensor) -> Tensor:
    """The column with the largest relative error that is allowed yet looks real, as a mask of columns."""
    mask = torch.zeros(analytical.shape[1], dtype=torch.bool)
    error = (analytical - numerical).abs()
    relative = error / numerical.abs()
    real = alike & (error > 4 * noise) & (relative > 1e-5)
    if bool(real.any()):
        mask[int(torch.where(real, relative, 0.0).amax(0).argmax())] = True
    return mask


def _spread(which: list[int], most: int) -> list[int]:
    return which if len(which) <= most else [which[i * len(which) // most] for i in range(most)]


def conclude(point: Point, matrices: Matrices, method: str) -> Comparison:
    """The verdict that the matrices give, with the blocks that differ first among the blocks."""
    blocks = _blocks(point, matrices)
    wrong = tuple((block.output, block.input) for block in blocks if bool(block.wrong.any()))
    if wrong:
        verdict, reason = Verdict.DIFFER, ""
    else:
        verdict, reason = _sure_or_not(matrices)
    return Comparison(
        verdict=verdict,
        method=method,
        wrong_pairs=wrong,
        blocks=blocks,
        resolution=_resolution(matrices),
        coverage=1.0,
        reason=reason,
        largest_relative_error=largest_real_error(matrices),
    )


def _sure_or_not(matrices: Matrices) -> tuple[Verdict, str]:
    error = (matrices.analytical - matrices.numerical).abs()
    same = (matrices.analytical == matrices.numerical) | (matrices.analytical.isnan() & matrices.numerical.isnan())
    if bool((~same & matrices.error_bar.isinf()).any()):
        return Verdict.UNSURE, "domain"
    if bool((~same & (error > matrices.tolerance)).any()):
        return Verdict.UNSURE, "precision"
    loose = matrices.error_bar > torch.maximum(matrices.tolerance, 0.02 * matrices.numerical.abs())
    if bool((~same & loose).any()):
        return Verdict.UNSURE, "precision"
    return Verdict.AGREE, ""


def largest_real_error(matrices: Matrices) -> float:
    """The largest error beyond its bar and within its tolerance, relative to the entry; 0.0 where none is."""
    error = (matrices.analytical - matrices.numerical).abs()
    largest = torch.maximum(matrices.numerical.abs(), matrices.analytical.abs())
    real = (error > 2 * matrices.error_bar) & (error > 1e-5 * largest) & (error <= matrices.tolerance)
    if not bool(real.any()):
        return 0.0
    return float(torch.where(real, error / largest, 0.0).max())


def _resolution(matrices: Matrices) -> float | None:
    finite = matrices.error_bar.isfinite() & (matrices.numerical != 0)
    if not bool(finite.any()):
        return None
    return float((matrices.error_bar[finite] / matrices.numerical[finite].abs()).median())


def _blocks(point: Point, matrices: Matrices) -> tuple[Block, ...]:
    blocks = []
    for output, (top, bottom) in enumerate(zip(point.output_offsets, point.output_offsets[1:], strict=False)):
        for each, (left, right) in enumerate(zip(point.input_offsets, point.input_offsets[1:], strict=False)):
            part = slice(top, bottom), slice(left, right)
            blocks.append(
                Block(
                    output=output,
                    input=each,
                    analytical=matrices.analytical[part],
                    numerical=matrices.numerical[part],
                    error_bar=matrices.error_bar[part],
                    tolerance=matrices.tolerance[part],
                )
            )
    return tuple(blocks)
