"""Before a mismatch is called wrong: is the function differentiable there at all, and is the gradient wrong beside it?

A correct rule disagrees with difference quotients where the function has a kink, jumps or ends. What tells these from
wrong rules: beside the point, at generic places, a correct rule agrees. There the entries that differ are looked at
again. Where they agree, the point itself is special, and its one-sided slopes and the gradients around it say how:
a gradient within their range is a valid (Clarke) subgradient, one outside is not; gradients around that agree with
each other and with the slopes, but not with the one given, show a rule that is wrong at just this point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import torch
from torch import Tensor

from gradbot.engine.comparison import Comparison
from gradbot.engine.directional import REFUSALS, Point, problem_at, signed_uniform
from gradbot.engine.problem import Problem
from gradbot.engine.slopes import STEPS, Along, atol, mixed, rtol, tolerance
from gradbot.engine.suspects import Suspects, suspects
from gradbot.model import CheckSettings, Scalar

MOVES = 3
NEIGHBOURS, MANY_NEIGHBOURS = 9, 64
MOST_DOUBTFUL = 8
BESIDE = 2.0**-10  # how far a point is moved, relative to its scale: far beyond every step, close for the gradient
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
        try:
            chosen = suspects(point, output, index, comparison, generator)
            tally = _pair_tally(point, chosen, settings, generator)
        except REFUSALS:
            # The function took the point and refuses a step beside it: it ends here.
            tally = {"domain_edges": 1}
        for name, count in tally.items():
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
        moved = moved_beside(point, generator)
        if moved is None:
            continue
        with problem_at(point.problem, moved) as problem:
            beside = Point.of(problem)
            gradients.append(_rows(beside, chosen))
            compared += 1
            # A rule may be wrong at some places only; entries are dear, projections are not.
            wrong = move < MOVES and _wrong_beside(beside, chosen, gradients[-1], settings)
            wrong_beside += wrong or _projection_wrong(beside, chosen, settings, generator)
    if wrong_beside >= min(2, compared) > 0:
        return {"wrong_beside": wrong_beside, "points_beside": compared}
    if not gradients:
        return {"domain_edges": 1, "points_beside": 0}
    tally = _here(point, chosen, torch.stack(gradients), settings, generator)
    return {**tally, "points_beside": compared}


def moved_beside(point: Point, generator: torch.Generator) -> tuple[Tensor, ...] | None:
    """A generic place beside the point where the function is defined as far as it is at the point."""
    for _ in range(4):
        direction = point.direction(generator)
        # At the edge of a domain one side exists: inwards, elementwise, is found by moving every element up or down.
        upwards = tuple(None if each is None else each.abs() for each in direction)
        for along in (direction, upwards):
            for sign in (1.0, -1.0):
                moved = point.moved(along, sign * BESIDE)
                if _defined(point, moved):
                    return moved
    return None


def _defined(point: Point, moved: tuple[Tensor, ...]) -> bool:
    """Whether the function has finite values wherever it has them at the point."""
    try:
        values = point.evaluate(moved)
    except REFUSALS:
        return False
    return values.shape == point.values.shape and bool((torch.isfinite(values) | ~torch.isfinite(point.values)).all())


def _rows(point: Point, chosen: Suspects) -> Tensor:
    start = point.rows(chosen.output).start
    return torch.stack([point.row(start + row)[chosen.input] for row in chosen.rows])


def _slopes(point: Point, chosen: Suspects, column: int, step: float) -> tuple[Tensor, Tensor]:
    """One-sided slopes of the chosen rows by one input element, per unit of it."""
    length = float(point.scales[chosen.input][column])
    ahead, behind = point.slopes(point.coordinate(chosen.input, column), step)
    rows = point.rows(chosen.output).start + torch.tensor(chosen.rows)
    return ahead[rows] / length, behind[rows] / length


def _wrong_beside(beside: Point, chosen: Suspects, gradients: Tensor, settings: CheckSettings) -> bool:
    """Whether entries of the rule disagree with smooth difference quotients at this generic point."""
    rows = beside.rows(chosen.output).start + torch.tensor(chosen.rows)
    magnitude = beside.values[rows].abs()
    for column in chosen.columns:
        ahead, behind = _slopes(beside, chosen, column, BESIDE_STEP)
        farther_ahead, farther_behind = _slopes(beside, chosen, column, 4 * BESIDE_STEP)
        length = float(beside.scales[chosen.input][column])
        rounding = 64 * beside.unit_roundoff * magnitude / (BESIDE_STEP * length)
        central = (ahead + behind) / 2
        bar = rounding + 3 * (central - (farther_ahead + farther_behind) / 2).abs()
        allowed = tolerance(settings, central) + bar
        smooth = (ahead - behind).abs() <= 0.02 * (ahead.abs() + behind.abs()) + allowed
        analytical = gradients[:, column]
        close = ((analytical - central).abs() <= allowed) | ~torch.isfinite(central)
        if bool((smooth & ~close).any()):
            return True
    return False


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
        allowed = max(1e-4, rtol(settings)) * signal + atol(settings) * float(cotangent.norm()) + noise
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
    """What each chosen row is at the point itself, by single elements of the input and by a few joint directions."""
    own = _rows(point, chosen)
    seen = _Rows.of(len(chosen.rows))
    entries = list(_directions(point, chosen, own, around, generator))
    for _, entry in entries:
        seen.add(entry, settings)
    outside = [(along, entry) for along, entry in entries if bool(_outside(entry, seen.jump, settings).any())]
    doubts = [_outside(entry, seen.jump, settings) for _, entry in outside]
    doubtful = [row for row in range(len(chosen.rows)) if any(bool(each[row]) for each in doubts)]
    doubtful = [row for row in doubtful if not bool(seen.edge[row])][:MOST_DOUBTFUL]
    wrong = _still_outside(point, chosen, doubtful, outside, seen.jump, settings, generator)
    kinked = seen.kink | mixed(around, tolerance(settings, around.abs().amax(0))).any(1)
    return {
        "invalid": int((wrong & kinked).sum()),
        "wrong_here": int((wrong & ~kinked).sum()),
        "jumps": int((seen.jump & ~wrong).sum()),
        "domain_edges": int(seen.edge.sum()),
        "kinks": int((kinked & ~wrong).sum()),
    }


def _directions(
    point: Point, chosen: Suspects, own: Tensor, around: Tensor, generator: torch.Generator
) -> Iterator[tuple[Tensor, Along]]:
    """Single elements, three random joint directions, and one in which all elements grow together."""
    rows = point.rows(chosen.output).start + torch.tensor(chosen.rows)
    single = [point.coordinate(chosen.input, column) for column in chosen.columns]
    joint = [point.direction(generator, only=chosen.input) for _ in range(3)]
    joint.append(tuple(each if at == chosen.input else None for at, each in enumerate(point.scales)))
    for direction in (*single, *joint):
        along = direction[chosen.input]
        assert along is not None
        slopes = [point.slopes(direction, step) for step in STEPS]
        yield (
            along,
            Along(
                own=_product(own, along),
                slopes=tuple((ahead[rows], behind[rows]) for ahead, behind in slopes),
                around=_product(around, along),
                rounding=64 * point.unit_roundoff * point.values[rows].abs() / STEPS[-1],
                length=float(along.norm()),
                single=int((along != 0).sum()) == 1,
            ),
        )


def _product(rows: Tensor, along: Tensor) -> Tensor:
    """Rows times a direction; elements that it leaves alone do not count, whatever they are."""
    moved = along != 0
    return rows[..., moved] @ along[moved]


def _still_outside(
    point: Point,
    chosen: Suspects,
    doubtful: list[int],
    outside: list[tuple[Tensor, Along]],
    jump: Tensor,
    settings: CheckSettings,
    generator: torch.Generator,
) -> Tensor:
    """Which doubtful rows stay outside when many more gradients around are taken into account."""
    wrong = torch.zeros(len(chosen.rows), dtype=torch.bool)
    if not doubtful:
        return wrong
    few = replace(chosen, rows=tuple(chosen.rows[row] for row in doubtful))
    gathered = []
    for _ in range(MANY_NEIGHBOURS):
        moved = moved_beside(point, generator)
        if moved is not None:
            with problem_at(point.problem, moved) as problem:
                gathered.append(_rows(Point.of(problem), few))
    if not gathered:
        return wrong
    more = torch.stack(gathered)
    places = torch.tensor(doubtful)
    for along, entry in outside:
        picked = entry.at(places, torch.cat([entry.around[:, places], _product(more, along)]))
        wrong[places] |= _outside(picked, jump[places], settings)
    return wrong


def _outside(entry: Along, jump: Tensor, settings: CheckSettings) -> Tensor:
    """Rows with an impossible analytical value. Slopes of a row that jumps along any direction say little along all."""
    return torch.where(jump, entry.beyond_jump(settings), entry.outside(settings))


@dataclass(slots=True, kw_only=True)
class _Rows:
    """What was seen of rows along any direction."""

    jump: Tensor
    edge: Tensor
    kink: Tensor

    @classmethod
    def of(cls, count: int) -> _Rows:
        empty = torch.zeros(count, dtype=torch.bool)
        return cls(jump=empty.clone(), edge=empty.clone(), kink=empty.clone())

    def add(self, entry: Along, settings: CheckSettings) -> None:
        sort = entry.sort(settings)
        self.jump |= sort.jump
        self.edge |= sort.edge
        self.kink |= sort.kink
