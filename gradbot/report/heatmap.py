"""A Jacobian map as lines of block characters, for a terminal and for a code block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradbot.model import JacobianMap
from gradbot.report import text

RAMP = "·░▒▓█"
NOT_FINITE = "!"
_DECADES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMap:
    """A picture: equally long lines, a caption above, and the sign (-1, 0, 1) of what each character stands for."""

    caption: str
    lines: tuple[str, ...]
    signs: tuple[tuple[int, ...], ...]


def render(picture: JacobianMap, width: int = 64, height: int = 16) -> TextMap:
    """Draw `picture` in at most `width` x `height` characters.

    A character stands for the value of largest magnitude in its block: full from a third of the largest on, then one
    shade less per decade; a dot is less than 1/3,000 of the largest. NaN and infinities show as `!`.
    """
    grid = shrink(picture.values, height, width)
    finite = [abs(value) for row in grid for value in row if math.isfinite(value)]
    largest = max(finite, default=0.0)
    wide = 2 if grid and 2 * len(grid[0]) <= width else 1
    lines = tuple("".join(_shade(value, largest) * wide for value in row) for row in grid)
    signs = tuple(tuple(_sign(value) for value in row for _ in range(wide)) for row in grid)
    title = {"error": "|analytical − numerical|", "analytical": "|analytical|", "numerical": "|numerical|"}
    size = f"{text.plural(picture.rows, 'input')} down, {text.plural(picture.columns, 'output')} across"
    scale = f"0 {RAMP} {text.number(largest, 2)}, a shade a decade"
    broken = f", {NOT_FINITE} not finite" if any(NOT_FINITE in line for line in lines) else ""
    name = title.get(picture.what, text.one_line(picture.what, 30))
    return TextMap(caption=f"{name}: {size}; {scale}{broken}", lines=lines, signs=signs)


def shrink(values: Sequence[Sequence[float]], height: int, width: int) -> tuple[tuple[float, ...], ...]:
    """At most `height` x `width` blocks of `values`, each the signed value of largest magnitude; NaN wins."""
    rows = min(len(values), height)
    columns = min(min((len(row) for row in values), default=0), width)
    if not rows or not columns:
        return ()
    across = len(values[0])
    result = []
    for i in range(rows):
        band = values[i * len(values) // rows : (i + 1) * len(values) // rows]
        line = []
        for j in range(columns):
            first, last = j * across // columns, (j + 1) * across // columns
            line.append(max((value for row in band for value in row[first:last]), key=_magnitude, default=0.0))
        result.append(tuple(line))
    return tuple(result)


def _magnitude(value: float) -> float:
    return math.inf if math.isnan(value) else abs(value)


def _shade(value: float, largest: float) -> str:
    if not math.isfinite(value):
        return NOT_FINITE
    if largest == 0.0 or value == 0.0:
        return RAMP[0]
    below = max(0.0, math.log10(largest) - math.log10(abs(value)))
    return RAMP[max(0, _DECADES - math.floor(below + 0.5))]


def _sign(value: float) -> int:
    return 0 if math.isnan(value) or value == 0 else (1 if value > 0 else -1)
