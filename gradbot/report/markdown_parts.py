"""The small values that markdown and HTML are made of: links, levels of detail, lines, sections; and their places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from gradbot.model import Location, Target
from gradbot.report import aggregate, text, wording
from gradbot.report.aggregate import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Where things are on the web; empty where they are not. `blob` ends before the path: `https://…/blob/<sha>`."""

    blob: str = ""
    run: str = ""
    html: str = ""
    junit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """How much is shown: how many failures in full, one line each, rows of a list, entries, pictures."""

    full: int
    lines: int
    rows: int
    entries: int
    pictures: int
    right_rows: bool
    name: int = 200
    sentence: int = 600


STAGES = (
    Detail(full=10_000, lines=10_000, rows=10_000, entries=8, pictures=10_000, right_rows=True),
    Detail(full=10_000, lines=10_000, rows=10_000, entries=3, pictures=10_000, right_rows=False),
    Detail(full=10_000, lines=10_000, rows=50, entries=3, pictures=5, right_rows=False),
    Detail(full=10, lines=300, rows=20, entries=3, pictures=3, right_rows=False),
    Detail(full=3, lines=100, rows=10, entries=2, pictures=1, right_rows=False, sentence=300),
    Detail(full=0, lines=40, rows=5, entries=0, pictures=0, right_rows=False, name=120, sentence=160),
    Detail(full=0, lines=5, rows=0, entries=0, pictures=0, right_rows=False, name=60, sentence=80),
    Detail(full=0, lines=0, rows=0, entries=0, pictures=0, right_rows=False, name=40, sentence=60),
)
"""From everything to the verdict alone. Passing rows go first, then details, then the text of single failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow:
    input: str
    output: str
    analytical: str
    numerical: str
    tolerance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One target's failure in full. `also` are its other failures, one line each."""

    target: str
    check: str
    headline: str
    place: str
    url: str
    symbol: str
    where: str
    certainty: str
    classification: str
    because: str
    rule: str
    facts: tuple[str, ...]
    input_title: str
    output_title: str
    entries: tuple[EntryRow, ...]
    picture: str
    output: str
    command: str
    also: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing to tell on one line."""

    target: str
    check: str
    headline: str
    place: str = ""
    url: str = ""
    where: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A folded list. `summary` stands on the fold, before the only line's own words where it has but one."""

    key: str
    summary: str
    lines: tuple[Line, ...]
    more: int = 0
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    target: str
    cells: tuple[str, ...]


def place_of(item: Item, known: Mapping[str, Target], links: Links, detail: Detail) -> tuple[str, str, str]:
    place = aggregate.location(item, dict(known))
    if place is None:
        return "", "", ""
    target = known.get(item.target)
    shown = text.cut_middle(wording.place_text(place, target.package if target else ""), detail.name)
    return shown, blob_url(links, place), text.one_line(place.symbol.rpartition(".")[2], 60)


def blob_url(links: Links, place: Location) -> str:
    """The place on the web; empty where there is none, or where the path does not lie in the repository."""
    path = place.path
    if not links.blob or path.startswith("/") or ".." in path.split("/") or text.has_hidden(path) or len(path) > 400:
        return ""
    lines = f"#L{place.line}" + (f"-L{place.end_line}" if place.end_line and place.end_line > place.line else "")
    return f"{links.blob}/{quote(path)}{lines}"


def line(item: Item, known: Mapping[str, Target], links: Links, detail: Detail) -> Line:
    """An item on one line."""
    place, url, _ = place_of(item, known, links, detail)
    return Line(
        target=text.cut_middle(text.one_line(item.target), detail.name),
        check=item.check or "run",
        headline=text.cut(wording.headline(item), detail.sentence),
        place=place,
        url=url,
        where=wording.where(item),
        because=text.cut(item.because, detail.sentence),
    )
