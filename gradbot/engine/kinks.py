"""Before a mismatch is called wrong: is the function differentiable there at all, and is the gradient wrong beside it?

A correct rule disagrees with difference quotients where the function has a kink, jumps or ends. What tells these from
wrong rules: beside the point, at generic places, a correct rule agrees. There the entries that differ are looked at
again. Where they agree, the point itself is special, and its one-sided slopes and the gradients around it say how:
a gradient within their range is a valid (Clarke) subgradient, one outside is not; gradients around that agree with
each other and with the slopes, but not with the one given, show a rule that is wrong at just this point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import Tensor

from gradbot.engine.comparison import Comparison
from gradbot.engine.directional import Point, problem_at, signed_uniform
from gradbot.engine.localise import DEFAULT_ATOL, DEFAULT_RTOL
from gradbot.engine.problem import Problem
from gradbot.engine.suspects import Suspects, suspects
from gradbot.model import CheckSettings, Scalar

MOVES = 3
NEIGHBOURS = 9
BESIDE = 2.0**-10  # how far a point is moved, relative to its scale: far beyond every step, close for the gradient
STEPS = (2.0**-17, 2.0**-20)
BESIDE_STEP = 2.0**-21


class TriageVerdict(str, Enum):
    """What a mismatch is."""

    WRONG_GRADIENT = "wrong_gradient"
    WRONG_AT_POINT = "wrong_at_point"
    KINK_VALID = "kink_valid"
    KINK_INVALID = "kink_invalid"
    JUMP = "jump"
    DOMAIN_EDGE = "domain_edge"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Triage:
    """A verdict with what it rests on: how many entries were looked at and how many were of each sort."""

    verdict: TriageVerdict
    details: Mapping[str, Scalar] = field(default_factory=dict)


def triage(problem: Problem, comparison: Comparison, settings: CheckSettings, seed: int = 0) -> Triage:
    """What the mismatch of `comparison`, of backward-mode Jacobians, is."""
    generator = torch.Generator().manual_seed(seed)
    point = Point.of(problem)
    tallies: dict[str, int] = {}
    pairs = comparison.wrong_pairs or tuple(
        (output, index) for output in range(len(point.sizes)) for index in range(len(point.inputs))
    )
    for output, index in pairs[:4]:
        chosen = suspects(point, output, index, comparison, generator)
        for name, count in _pair_tally(point, chosen, settings, generator).items():
            tallies[name] = tallies.get(name, 0) + count
    return Triage(verdict=_verdict(tallies), details=dict(tallies))


def _verdict(tally: Mapping[str, int]) -> TriageVerdict:
    if tally.get("wrong_beside", 0):
        return TriageVerdict.WRONG_GRADIENT
    if not tally.get("points_beside", 0):
        return TriageVerdict.DOMAIN_EDGE if tally.get("domain_edges", 0) else TriageVerdict.UNDECIDED
    for name, verdict in (
        ("invalid", TriageVerdict.KINK_INVALID),
        ("wrong_here", TriageVerdict.WRONG_AT_POINT),
        ("jumps", TriageVerdict.JUMP),
        ("domain_edges", TriageVerdict.DOMAIN_EDGE),
        ("kinks", TriageVerdict.KINK_VALID),
    ):
        if tally.get(name, 0):
            return verdict
    return TriageVerdict.UNDECIDED


def _pair_tally(point: Point, chosen: Suspects, settings: CheckSettings, generator: torch.Generator) -> dict[str, int]:
    wrong_beside, compared = 0, 0
    gradients = []
    for move in range(NEIGHBOURS):
        moved = _move(point, generator)
        if moved is None:
            continue
        with problem_at(point.problem, moved) as problem:
            beside = Point.of(problem)
            gradients.append(_rows(beside, chosen))
            if move >= MOVES:
                continue
            compared += 1
            wrong_beside += _wrong_beside(beside, chosen, gradients[-1], settings, generator)
    if compared and 2 * wrong_beside > compared:
        return {"wrong_beside": wrong_beside, "points_beside": compared}
    if not gradients:
        return {"domain_edges": 1, "points_beside": 0}
    tally = _here(point, chosen, torch.stack(gradients), settings, generator)
    return {**tally, "points_beside": compared}


def _move(point: Point, generator: torch.Generator) -> tuple[Tensor, ...] | None:
    """A generic place beside the point where the function is defined as far as it is at the point."""
    defined = torch.isfinite(point.values)
    for _ in range(4):
        direction = point.direction(generator)
        for sign in (1.0, -1.0):
            moved = point.moved(direction, sign * BESIDE)
            if bool((torch.isfinite(point.evaluate(moved)) | ~defined).all()):
                return moved
        # At the edge of a domain one side exists: inwards, elementwise, is found by moving every element up or down.
        for sign in (1.0, -1.0):
            moved = point.moved(tuple(None if each is None else each.abs() for each in direction), sign * BESIDE)
            if bool((torch.isfinite(point.evaluate(moved)) | ~defined).all()):
                return moved
    return None


def _rows(point: Point, chosen: Suspects) -> Tensor:
    start = point.rows(chosen.output).start
    return torch.stack([point.row(start + row)[chosen.input] for row in chosen.rows])


def _slopes(point: Point, chosen: Suspects, column: int, step: float) -> tuple[Tensor, Tensor]:
    """One-sided slopes of the chosen rows by one input element, per unit of it."""
    length = float(point.scales[chosen.input][column])
    ahead, behind = point.slopes(point.coordinate(chosen.input, column), step)
    rows = point.rows(chosen.output).start + torch.tensor(chosen.rows)
    return ahead[rows] / length, behind[rows] / length


def _wrong_beside(
    beside: Point, chosen: Suspects, gradients: Tensor, settings: CheckSettings, generator: torch.Generator
) -> bool:
    """Whether the rule disagrees with smooth difference quotients at this generic point."""
    rows = beside.rows(chosen.output).start + torch.tensor(chosen.rows)
    magnitude = beside.values[rows].abs()
    for column in chosen.columns:
        ahead, behind = _slopes(beside, chosen, column, BESIDE_STEP)
        farther_ahead, farther_behind = _slopes(beside, chosen, column, 4 * BESIDE_STEP)
        length = float(beside.scales[chosen.input][column])
        rounding = 64 * beside.unit_roundoff * magnitude / (BESIDE_STEP * length)
        central = (ahead + behind) / 2
        bar = rounding + 3 * (central - (farther_ahead + farther_behind) / 2).abs()
        allowed = _tolerance(settings, central) + bar
        smooth = (ahead - behind).abs() <= 0.02 * (ahead.abs() + behind.abs()) + allowed
        analytical = gradients[:, column]
        close = ((analytical - central).abs() <= allowed) | ~torch.isfinite(central)
        if bool((smooth & ~close).any()):
            return True
    return _projection_wrong(beside, chosen, settings, generator)


def _projection_wrong(beside: Point, chosen: Suspects, settings: CheckSettings, generator: torch.Generator) -> bool:
    """The same for all rows at once, by random projections of those that are smooth along the direction."""
    rows = beside.rows(chosen.output)
    for _ in range(2):
        direction = beside.direction(generator, only=chosen.input)
        ahead, behind = beside.slopes(direction, BESIDE_STEP)
        farther_ahead, farther_behind = beside.slopes(direction, 4 * BESIDE_STEP)
        central = (ahead + behind) / 2
        rounding = 64 * beside.unit_roundoff * beside.values.abs() / BESIDE_STEP
        bar = rounding + 3 * (central - (farther_ahead + farther_behind) / 2).abs()
        smooth = (ahead - behind).abs() <= 1e-4 * (ahead.abs() + behind.abs()) + bar
        smooth &= torch.isfinite(bar) & torch.isfinite(central)
        cotangent = torch.zeros_like(central)
        cotangent[rows] = signed_uniform(beside.sizes[chosen.output], generator) * smooth[rows]
        gradient = beside.vjp(cotangent)[chosen.input]
        along = direction[chosen.input]
        assert along is not None
        kept = torch.where(cotangent != 0, central, 0.0)
        analytical, numerical = gradient * along, cotangent * kept
        signal = max(float(analytical.norm()), float(numerical.norm()))
        noise = 6 * float((cotangent * torch.where(cotangent != 0, bar, 0.0)).norm())
        allowed = max(1e-4, _rtol(settings)) * signal + _atol(settings) * float(cotangent.norm()) + noise
        difference = float(analytical.sum() - numerical.sum())
        if not math.isfinite(difference) or abs(difference) > allowed:
            return math.isfinite(difference) or bool(torch.isnan(gradient).any())
    return False


def _here(
    point: Point,
    chosen: Suspects,
    around: Tensor,
    settings: CheckSettings,
    generator: torch.Generator,
) -> dict[str, int]:
    """What each chosen entry, and each chosen row along random directions, is at the point itself."""
    own = _rows(point, chosen)
    tally = dict.fromkeys(("invalid", "wrong_here", "jumps", "domain_edges", "kinks"), 0)
    rows = point.rows(chosen.output).start + torch.tensor(chosen.rows)
    magnitude = point.values[rows].abs()
    kinked = _mixed(around, _tolerance(settings, around.abs().amax(0))).any(1)
    for column in chosen.columns:
        length = float(point.scales[chosen.input][column])
        entry = _Along(
            own=own[:, column],
            slopes=tuple(_slopes(point, chosen, column, step) for step in STEPS),
            around=around[:, :, column],
            rounding=64 * point.unit_roundoff * magnitude / (STEPS[-1] * length),
        )
        linear = _linear(point, chosen, column, generator) if bool(kinked.any()) else ~kinked
        entry.count(tally, settings, decided=~kinked | linear, margin=0.0)
    for _ in range(3):
        direction = point.direction(generator, only=chosen.input)
        along = direction[chosen.input]
        assert along is not None
        slopes = [point.slopes(direction, step) for step in STEPS]
        joint = _Along(
            own=(own @ along),
            slopes=tuple((ahead[rows], behind[rows]) for ahead, behind in slopes),
            around=around @ along,
            rounding=64 * point.unit_roundoff * magnitude / STEPS[-1],
        )
        joint.count(tally, settings, decided=~kinked, margin=0.5)
    return tally


@dataclass(frozen=True, slots=True, kw_only=True)
class _Along:
    """Rows along one direction: the analytical value, one-sided slopes at two steps, analytical values around."""

    own: Tensor
    slopes: tuple[tuple[Tensor, Tensor], ...]
    around: Tensor  # (neighbours, rows)
    rounding: Tensor

    def count(self, tally: dict[str, int], settings: CheckSettings, *, decided: Tensor, margin: float) -> None:
        """Adds what each row is. `margin` widens the range of slopes, relative to its width; where not `decided`, a
        slope that looks smooth does not speak against the analytical value."""
        (far_ahead, far_behind), (ahead, behind) = self.slopes
        finite = torch.isfinite(ahead) & torch.isfinite(behind)
        edge = torch.isfinite(ahead) ^ torch.isfinite(behind)
        gap, far_gap = (ahead - behind).abs(), (far_ahead - far_behind).abs()
        size = torch.maximum(ahead.abs(), behind.abs())
        near_zero = 1e-6 * size + self.rounding + _tolerance(settings, size)
        smooth = finite & (gap <= torch.maximum(near_zero, 0.5 * far_gap)) & (far_gap <= 1e-2 * size + near_zero)
        # Slopes that grow as the step shrinks are none: |x| has sign(0) = 0 between two equal jumps of its gradient.
        for near, far in ((ahead, far_ahead), (behind, far_behind)):
            smooth &= near.abs() <= 1.5 * far.abs() + near_zero
        around_low, around_high = self.around.amin(0), self.around.amax(0)
        known = torch.maximum(torch.maximum(around_low.abs(), around_high.abs()), self.own.abs()).nan_to_num(0.0, 0.0)
        jump, infinite = torch.zeros_like(smooth), torch.zeros_like(smooth)
        for near, far in ((ahead, far_ahead), (behind, far_behind)):
            growth = (near.abs() / far.abs()).nan_to_num(0.0)
            growing = finite & ~smooth & (near.abs() > 3 * known + 1e2 * near_zero) & (growth > 1.5)
            # The step shrinks eightfold: where the change itself stays, the function jumps.
            jump |= growing & (growth > 0.75 * STEPS[0] / STEPS[1])
            infinite |= growing
        infinite &= ~jump
        kink = finite & ~smooth & ~jump & ~infinite

        mixed = _mixed(self.around, near_zero)
        low, high = torch.minimum(ahead, behind), torch.maximum(ahead, behind)
        # Few neighbours need not show every gradient there is around; where slopes show no kink they are all there is.
        width = torch.where(mixed, around_high - around_low, 0.0) * torch.where(smooth, 1.0, margin)
        low = torch.where(mixed, torch.minimum(low, around_low) - width, low)
        high = torch.where(mixed, torch.maximum(high, around_high) + width, high)
        allowed = 2e-3 * torch.maximum(low.abs(), high.abs()) + near_zero
        inside = (self.own >= low - allowed) & (self.own <= high + allowed)
        undefined = ~torch.isfinite(self.own)
        special = kink | (smooth & mixed)

        tally["jumps"] += int(jump.sum())
        tally["domain_edges"] += int((edge | infinite | (special & undefined)).sum())
        tally["kinks"] += int((special & inside).sum())
        tally["invalid"] += int((special & ~inside & ~undefined).sum())
        tally["wrong_here"] += int((smooth & ~mixed & ~inside & decided).sum())


def _mixed(around: Tensor, near_zero: Tensor) -> Tensor:
    """Where gradients around differ by more than those of a smooth function do; `around` is (neighbours, ...)."""
    low, high = around.amin(0), around.amax(0)
    return ~(high - low <= 0.02 * torch.maximum(low.abs(), high.abs()) + near_zero)


def _linear(point: Point, chosen: Suspects, column: int, generator: torch.Generator) -> Tensor:
    """Rows whose slope along one element adds to those along others, as it does away from kinks that they share."""
    rows = point.rows(chosen.output).start + torch.tensor(chosen.rows)
    own = point.coordinate(chosen.input, column)
    linear = torch.ones(len(rows), dtype=torch.bool)
    alone, _ = point.slopes(own, STEPS[-1])
    for _ in range(2):
        others = point.direction(generator, only=chosen.input)
        rest, _ = point.slopes(others, STEPS[-1])
        both = tuple(
            None if first is None or second is None else first + second
            for first, second in zip(own, others, strict=True)
        )
        together, _ = point.slopes(both, STEPS[-1])
        size = together.abs() + rest.abs() + alone.abs()
        rounding = 64 * point.unit_roundoff * point.values.abs() / STEPS[-1]
        linear &= ((together - rest - alone).abs() <= 1e-3 * size + rounding)[rows]
    return linear


def _tolerance(settings: CheckSettings, size: Tensor) -> Tensor:
    return _atol(settings) + _rtol(settings) * size.abs()


def _atol(settings: CheckSettings) -> float:
    return DEFAULT_ATOL if settings.atol is None else settings.atol


def _rtol(settings: CheckSettings) -> float:
    return DEFAULT_RTOL if settings.rtol is None else settings.rtol


def moved_inputs(problem: Problem, seed: int = 0) -> tuple[Tensor, ...] | None:
    """Inputs moved off a kink by a thousandth of their scale, for users who allow `resample`; None where none is
    defined."""
    point = Point.of(problem)
    return _move(point, torch.Generator().manual_seed(seed))
