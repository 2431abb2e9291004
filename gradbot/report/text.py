"""Text and figures made fit to show: cleaned of what could act on a reader's terminal or page, cut, and formatted.

Whatever a report holds, names included, may have been chosen by somebody else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from gradbot.messages import number
from gradbot.model import Number

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_])")
# C0 and C1 controls but tab and line feed, soft hyphen, bidi marks, embeddings and isolates, zero-width characters,
# line and paragraph separators, interlinear marks, tags, non-characters and lone surrogates.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff9-\uffff\U000e0000-\U000e0fff]"
)

__all__ = [
    "aligned",
    "clean",
    "count",
    "cut",
    "cut_middle",
    "duration",
    "has_hidden",
    "index",
    "listing",
    "number",
    "one_line",
    "plural",
    "ranges",
    "shape",
    "tail",
]


def clean(text: str) -> str:
    """`text` without ANSI sequences, control, bidi and invisible characters; line feeds and tabs stay."""
    return _HIDDEN.sub("", _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def has_hidden(text: str) -> bool:
    """Whether `text` holds anything that `clean` takes out, or a line feed or tab."""
    return clean(text) != text or "\n" in text or "\t" in text


def one_line(text: str, limit: int = 300) -> str:
    """`text` cleaned, on one line, at most `limit` characters."""
    return cut(" ".join(clean(text[: 4 * limit]).split()), limit)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of `text`; an ellipsis says that more stood there."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)].rstrip() + "…"


def cut_middle(text: str, limit: int) -> str:
    """Like `cut`, keeping both ends: names differ at their ends."""
    if len(text) <= limit:
        return text
    head = max((limit - 1) // 3, 0)
    return text[:head] + "…" + text[len(text) - (limit - 1 - head) :]


def tail(text: str, lines: int = 20, characters: int = 4000) -> str:
    """The last lines of `text`, cleaned and capped."""
    kept = clean(text[-4 * characters :])[-characters:].rstrip().split("\n")[-lines:]
    return "\n".join(line.rstrip() for line in kept)


def aligned(value: Number, digits: int = 4) -> str:
    """Like `number`, with trailing zeros kept, so that a column reads well: `0.5000`."""
    if isinstance(value, complex) or not math.isfinite(value) or value == 0:
        return number(value, digits)
    small = abs(value) < 1e-3
    plain = f"{value:.{digits - 1}e}" if small else f"{value:#.{digits}g}".rstrip(".")
    mantissa, e, exponent = plain.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def count(value: int) -> str:
    """A whole number with thousands separated: `8,192`."""
    return f"{value:,}"


def plural(value: int, word: str, words: str = "") -> str:
    """`1 target`, `2 targets`."""
    return f"{count(value)} {word if value == 1 else words or word + 's'}"


def duration(seconds: float) -> str:
    """`41 s`, `1 min 48 s`, `2 h 5 min`; below ten seconds with a decimal, unknown as `?`."""
    if not math.isfinite(seconds) or seconds < 0:
        return "?"
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def index(position: Sequence[int]) -> str:
    """A position in a tensor: `[3, 127]`; `scalar` for a tensor without dims."""
    return f"[{', '.join(map(str, position))}]" if position else "scalar"


def shape(sizes: Sequence[int]) -> str:
    """A shape: `64 × 128`; `scalar` for a tensor without dims."""
    return " × ".join(map(count, sizes)) if sizes else "scalar"


def listing(words: Iterable[str], last: str = "and", most: int = 6) -> str:
    """`a`, `a and b`, `a, b and c`; beyond `most`: `a, b and 5 more`."""
    items = list(words)
    if len(items) > most:
        items = [*items[: most - 1], f"{len(items) - most + 1} more"]
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def ranges(indices: Sequence[int], most: int = 8) -> str:
    """Indices as runs: `0..31, 64`."""
    runs: list[tuple[int, int]] = []
    for position in sorted(set(indices)):
        if runs and position == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], position)
        else:
            runs.append((position, position))
    shown = [str(first) if first == last else f"{first}..{last}" for first, last in runs[:most]]
    return ", ".join(shown) + (f" and {len(runs) - most} more" if len(runs) > most else "")
