"""The noise-aware probe: directional derivatives of functions that exist in low precision only.

Five-point differences with the perturbations as they were really rounded; per output row the noise from fourth
differences and the truncation from the gap between the five- and the three-point formula; the noise of the backward
from gradients at inputs moved by a few roundings. Rows are weighted by what they can tell. A pass needs a resolution
that the dtype allows, a failure two steps that see it and numerics that agree with themselves; all else is unsure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.directional import Direction, Point, flat, problem_at, signed_uniform
from gradbot.engine.low_precision.columns import some_column_wrong
from gradbot.engine.low_precision.entries import block_of
from gradbot.engine.low_precision.stencil import Sample, noise_of, sample_along
from gradbot.engine.problem import Problem

STEPS = {
    2.0**-53: (2.0**-12, 2.0**-16, 2.0**-9),
    2.0**-24: (2.0**-6, 2.0**-9, 2.0**-12, 2.0**-4),
    2.0**-11: (2.0**-3, 2.0**-5, 2.0**-2),
    2.0**-8: (2.0**-2, 2.0**-4, 2.0**-5, 2.0**-1),
}
_WIDE_STEPS = (2.0, 8.0)
"""For an input that hardly moves the outputs: along one that they are linear in no step is too wide."""
RESOLUTION = {2.0**-53: 1e-4, 2.0**-24: 0.02, 2.0**-11: 0.1, 2.0**-8: 0.25}
DIRECTIONS, COTANGENTS = 4, 4
NOISES, BACKWARD_NOISES = 5.0, 2.0
MOST_WEIGHT = {2.0**-53: 1e12, 2.0**-24: 1e6, 2.0**-11: 64.0, 2.0**-8: 1e6}
COVERED = 0.9
_FINEST_ALONE, _FINE = 2.0**-11, 2.0**-24
_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one step length says. `worst` is the cotangent that disagreed most, with its gradients.

    `dim_inputs` are those whose own part of the derivative drowns beside that of the others.
    """

    ratio: float
    resolution: float
    coverage: float
    worst: tuple[Tensor, tuple[Tensor, ...]] | None = None
    undefined: bool = False
    dim_inputs: frozenset[int] = frozenset()

    @property
    def differs(self) -> bool:
        return self.ratio > 1


def compare_by_probe(problem: Problem, seed: int = 0, roundoff: float | None = None) -> Comparison:
    """Verdict of the probe over all inputs, then, where that does not decide, input by input.

    `roundoff` is that of the arithmetic inside, where it is coarser than that of inputs and outputs.
    """
    point = Point.of(problem)
    level = max(point.unit_roundoff, roundoff or 0.0)
    generator = torch.Generator().manual_seed(seed)
    if not len(point.values) or not any(each.numel() for each in point.inputs):
        return Comparison(verdict=Verdict.AGREE, method="noise-aware probe", coverage=1.0)
    comparison = _compare(point, level, generator)
    if comparison.verdict is not Verdict.UNSURE:
        return comparison
    # relative to its own size no step crosses zero, where so many functions have a kink, a pole or their end
    relative = _compare(replace(point, scales=tuple(_own_size(each) for each in point.inputs)), level, generator)
    return comparison if relative.verdict is Verdict.UNSURE else relative


def _own_size(values: Tensor) -> Tensor:
    size = values.abs()
    return size.clamp_min(2.0**-6 * float(size.square().mean().sqrt()) or 1.0) if values.numel() else size


def _compare(point: Point, level: float, generator: torch.Generator) -> Comparison:
    verdict, looks = _ladder(point, None, level, generator)
    indices = range(len(point.inputs))
    if verdict is Verdict.AGREE and len(point.inputs) > 1:
        # agreement of all together says nothing of an input that hardly takes part in it
        dim = [_ladder(point, index, level, generator) for index in sorted(looks[-1].dim_inputs)]
        verdict = Verdict.AGREE if all(one is Verdict.AGREE for one, _ in dim) else Verdict.UNSURE
    wrong: tuple[int, ...] = tuple(indices) if verdict is Verdict.DIFFER and len(point.inputs) == 1 else ()
    if verdict is not Verdict.AGREE and len(point.inputs) > 1:
        each = [_ladder(point, index, level, generator) for index in indices]
        wrong = tuple(index for index in indices if each[index][0] is Verdict.DIFFER)
        if wrong:
            verdict = Verdict.DIFFER
        elif all(one is Verdict.AGREE for one, _ in each):
            verdict = Verdict.AGREE
        else:
            # A disagreement that no input shows alone is not held against the function.
            verdict = Verdict.UNSURE
        looks = [look for _, own in each for look in own]
    best = min(looks, key=lambda look: look.resolution)
    wrong_pairs = tuple((output, index) for index in wrong for output in _outputs_of(point, index, generator))
    needed, step = RESOLUTION[_level(level)], STEPS[_level(level)][0]
    blocks = [block_of(point, output, index, step, level, needed) for output, index in wrong_pairs]
    return Comparison(
        verdict=verdict,
        method="noise-aware probe",
        wrong_pairs=wrong_pairs,
        blocks=tuple(each for each in blocks if each is not None),
        resolution=best.resolution if math.isfinite(best.resolution) else None,
        coverage=best.coverage,
        reason="precision" if verdict is Verdict.UNSURE else "",
    )


def _outputs_of(point: Point, index: int, generator: torch.Generator) -> tuple[int, ...]:
    """The outputs that input `index` reaches: with several of them the probe does not tell which is wrong."""
    if len(point.sizes) == 1:
        return (0,)
    reached = []
    for output in range(len(point.sizes)):
        cotangent = torch.zeros_like(point.values)
        cotangent[point.rows(output)] = signed_uniform(point.sizes[output], generator)
        if bool(point.vjp(cotangent)[index].any()):
            reached.append(output)
    return tuple(reached[:1]) or (0,)


def _ladder(point: Point, only: int | None, roundoff: float, generator: torch.Generator) -> tuple[Verdict, list[_Look]]:
    needed = RESOLUTION[roundoff] if roundoff in RESOLUTION else RESOLUTION[_level(roundoff)]
    steps = STEPS.get(roundoff, STEPS[_level(roundoff)])
    looks: list[_Look] = []
    differing: list[_Look] = []
    precise = False
    for step in steps:
        look = _look(point, step, only, roundoff, generator)
        looks.append(look)
        if look.undefined:
            return Verdict.UNSURE, looks
        if not look.differs and look.resolution <= needed:
            if look.coverage >= COVERED:
                return Verdict.AGREE, looks
            precise = True
        elif look.differs and look.resolution <= max(1.0, needed):
            differing.append(look)
    if precise and not differing:
        return Verdict.AGREE, looks
    if only is not None and not differing:
        looks += [_look(point, step, only, roundoff, generator) for step in _WIDE_STEPS]
        if any(not look.differs and look.resolution <= needed and look.coverage >= COVERED for look in looks):
            return Verdict.AGREE, looks
    if len(differing) >= 2 and not precise:
        worst = differing[-1].worst
        if worst is not None and _confirmed(point, steps, only, worst, roundoff, generator):
            return Verdict.DIFFER, looks
    return Verdict.UNSURE, looks


def _confirmed(
    point: Point,
    steps: tuple[float, ...],
    only: int | None,
    worst: tuple[Tensor, tuple[Tensor, ...]],
    roundoff: float,
    generator: torch.Generator,
) -> bool:
    """Whether the disagreement is the same along fresh directions, and that of single elements."""
    if not _consistent(point, [steps[0], steps[1]], only, worst, generator):
        return False
    if only is None and len(point.inputs) > 1:
        return True  # input by input it is looked at next
    if roundoff > _FINEST_ALONE:
        return True  # a single element hardly stands out of the rounding
    index, needed = only or 0, RESOLUTION[_level(roundoff)]
    cotangent, gradients = worst
    looked_at = steps[:3] if roundoff <= _FINE else steps[:2]
    return some_column_wrong(point, index, cotangent, gradients[index], looked_at, roundoff, needed, generator)


def _level(roundoff: float) -> float:
    return next((each for each in sorted(STEPS) if each >= roundoff), 2.0**-8)


def _look(point: Point, step: float, only: int | None, roundoff: float, generator: torch.Generator) -> _Look:
    samples = [sample_along(point, point.direction(generator, only=only), step) for _ in range(DIRECTIONS)]
    five = torch.stack([each.five for each in samples])
    three = torch.stack([each.three for each in samples])
    fourth = torch.stack([each.fourth for each in samples])
    finite = torch.isfinite(five).all(0) & torch.isfinite(fourth).all(0) & torch.isfinite(point.values)
    if not bool(finite.any()):
        return _Look(ratio=0.0, resolution=math.inf, coverage=0.0, undefined=True)
    five, three, fourth = (torch.where(finite, each, 0.0) for each in (five, three, fourth))
    magnitude = torch.where(finite, point.values.abs(), 0.0)
    noise = noise_of(fourth, magnitude, roundoff)
    truncation = _truncation(five, three)
    signal = five.abs().mean(0)
    rms = float(magnitude.square().mean().sqrt())
    # A derivative that changes the value by less than a hundredth over its own scale is immaterial at this precision.
    immaterial = step * 1e-2 * magnitude.clamp_min(0.1 * rms) + _TINY
    bar = 0.95 * NOISES * noise + truncation.amax(0) + _TINY
    weight = torch.where(finite, 1 / bar, 0.0)
    weight = (weight / weight.max()).clamp_min(1 / MOST_WEIGHT.get(point.unit_roundoff, 1e6)) * finite
    coverage = float((((bar <= 0.5 * signal) | (bar <= immaterial)) & finite).double().mean())

    drawn = [signed_uniform(len(weight), generator) * weight for _ in range(COTANGENTS)]
    aligned = [torch.sign(row) * weight for row in five]
    cotangents = [_stored(point, each) for each in (*drawn, *aligned)]
    gradients = [point.vjp(each) for each in cotangents]
    spread = _backward_noise(point, cotangents, gradients, samples, roundoff, generator)

    ratio, worst, resolutions = 0.0, None, []
    dim = frozenset(range(len(point.inputs)))
    for number, (cotangent, gradient) in enumerate(zip(cotangents, gradients, strict=True)):
        for place, sample in enumerate(samples):
            if number >= COTANGENTS and number - COTANGENTS != place:
                continue
            analytical, size = _dot(gradient, sample.taken)
            if not math.isfinite(analytical):
                return _Look(ratio=math.inf, resolution=0.0, coverage=coverage, worst=(cotangent, gradient))
            numerical = float(cotangent @ five[place])
            scale = float((cotangent * five[place]).norm())
            allowed = (
                NOISES * 0.95 * float((cotangent * noise).norm())
                + abs(float(cotangent @ (torch.sign(five[place] - three[place]) * truncation[place])))
                + 0.5 * float((cotangent * truncation[place]).norm())
                + BACKWARD_NOISES * spread * size
                + _TINY
            )
            reach = max(size, scale)
            if size == 0 or allowed <= size:
                # A gradient that is there and drowns in noise is not checked by being small.
                reach = max(reach, float((cotangent * immaterial).norm()))
            if number >= COTANGENTS:
                reach = max(reach, abs(numerical))
            else:
                resolutions.append(0.0 if allowed <= 10 * _TINY else allowed / (reach + _TINY))
                dim &= _drowned(gradient, sample.taken, allowed)
            if abs(analytical - numerical) / allowed > ratio:
                ratio, worst = abs(analytical - numerical) / allowed, (cotangent, gradient)
    return _Look(
        ratio=ratio,
        resolution=sorted(resolutions)[len(resolutions) // 2],
        coverage=coverage,
        worst=worst,
        dim_inputs=dim,
    )


def _drowned(gradient: tuple[Tensor, ...], taken: Direction, allowed: float) -> frozenset[int]:
    """Inputs of whose part in a directional derivative half could be wrong without being seen."""
    drowned = set()
    for index, (own, step) in enumerate(zip(gradient, taken, strict=True)):
        if step is not None and not allowed <= 0.5 * float((own * step).norm()):
            drowned.add(index)
    return frozenset(drowned)


def _truncation(five: Tensor, three: Tensor) -> Tensor:
    """What the five-point formula leaves off: of smooth functions as small a part of what the three-point one does as
    that is of the derivative; half of it where they are far apart, as at a kink."""
    gap = (five - three).abs()
    share = 1.5 * gap / five.abs().clamp_min(_TINY)
    return gap * share.clamp(0.05, 0.5)


def _backward_noise(
    point: Point,
    cotangents: list[Tensor],
    gradients: list[tuple[Tensor, ...]],
    samples: list[Sample],
    roundoff: float,
    generator: torch.Generator,
) -> float:
    """The relative noise of the backward: how far gradients move when the inputs move by a few roundings."""
    squares, count = 0.0, 0
    for _ in range(2):
        moved = []
        for own, values in zip(point.problem.inputs, point.inputs, strict=True):
            signs = torch.randint(0, 2, values.shape, generator=generator).double() * 2 - 1
            moved.append((values + 4 * roundoff * signs * values.abs()).to(own.dtype).view(own.shape).to(own.device))
        with problem_at(point.problem, moved) as problem:
            beside = Point.of(problem)
            for cotangent, gradient in zip(cotangents, gradients, strict=True):
                other = beside.vjp(cotangent)
                for sample in samples:
                    analytical, size = _dot(gradient, sample.taken)
                    moved_value, _ = _dot(other, sample.taken)
                    if math.isfinite(moved_value) and math.isfinite(analytical):
                        ratio = (moved_value - analytical) / (size + _TINY)
                        squares += ratio * ratio  # infinite rather than an OverflowError
                        count += 1
    return max(min(math.sqrt(squares / max(count, 1)), 1.0), 0.5 * roundoff)


def _dot(gradient: tuple[Tensor, ...], taken: Direction) -> tuple[float, float]:
    """The analytical directional derivative, and the root of its summed squares."""
    total, squares = 0.0, 0.0
    for own, step in zip(gradient, taken, strict=True):
        if step is not None:
            terms = own * step
            total += float(terms.sum())
            squares += float(terms.square().sum())
    return total, math.sqrt(squares)


def _stored(point: Point, cotangent: Tensor) -> Tensor:
    """A cotangent as its outputs' dtypes hold it."""
    parts = torch.split(cotangent, list(point.sizes))
    outputs = point.linearization.outputs
    return torch.cat([flat(part.to(output.dtype)) for part, output in zip(parts, outputs, strict=True)])


def _consistent(
    point: Point,
    steps: list[float],
    only: int | None,
    worst: tuple[Tensor, tuple[Tensor, ...]],
    generator: torch.Generator,
) -> bool:
    """Along fresh directions the difference, per unit of step, is the same at two steps: rounding is not."""
    cotangent, gradient = worst
    agreeing = 0
    for _ in range(3):
        direction = point.direction(generator, only=only)
        errors = []
        for step in steps:
            sample = sample_along(point, direction, step)
            numerical = float(cotangent @ torch.where(torch.isfinite(sample.five), sample.five, 0.0))
            errors.append((_dot(gradient, sample.taken)[0] - numerical) / step)
        first, second = errors
        agreeing += first * second > 0 and abs(first - second) <= 0.5 * min(abs(first), abs(second))
    return agreeing >= 2
