"""A report as one HTML page: a single file that asks nothing of the network and opens from a folder.

A strict Content-Security-Policy names the page's own style and script by their hashes; text goes through autoescape
or, for what the script shows, through JSON that cannot end its element.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gradbot import messages
from gradbot.model import Report
from gradbot.report import aggregate, compare, html_view, markdown_parts, markdown_view, text
from gradbot.report.aggregate import Item
from gradbot.report.compare import Changes
from gradbot.report.markdown_matrix import title_of
from gradbot.report.markdown_parts import Links

_TEMPLATES = Path(__file__).parent / "templates"
_MOST_WORST = 40
_MOST_ROWS = 100


def render(
    report: Report,
    changes: Changes | None = None,
    *,
    links: Links | None = None,
    sources: Mapping[str, str] | None = None,
    title: str = "gradbot",
) -> str:
    """The page. `sources` maps paths, as locations name them, to source text: excerpts come from there."""
    changes = compare.compare(report) if changes is None else changes
    links = links or Links()
    view = markdown_view.build(report, changes, links, markdown_parts.STAGES[0])
    matrix = _matrix(report, changes)
    short, full, unpictured = html_view.cases(report, changes, links, sources or {})
    known = aggregate.targets_by_id(report)
    new = [item for item in changes.told if item.failing and item.new]
    style = (_TEMPLATES / "report.css").read_text("utf-8")
    script = (_TEMPLATES / "report.js").read_text("utf-8")
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(title_of=title_of)
    return environment.get_template(
        "report.html.j2"
    ).render(
        title=text.one_line(title),
        view=view,
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704  the package's own file
        script=Markup(script),  # noqa: S704  the package's own file
        cases=json_for_html(short),
        details=[json_for_html(each) for each in full],
        count=len(short),
        unpictured=unpictured,
        states=_states(report, changes),
        matrix=matrix,
        rest=json_for_html(matrix["rest"]),
        worst=[
            {"line": markdown_parts.line(item, known, links, markdown_parts.STAGES[0]), "href": _href(item)}
            for item in new[:_MOST_WORST]
        ],
        worst_more=max(0, len(new) - _MOST_WORST),
        failing=[item for item in changes.told if item.failing],
        run=report.run,
        notes=[text.one_line(each) for each in _notes(report)],
    )


def json_for_html(value: Any) -> Markup:
    """JSON that stands inside a script element: nothing in it can end the element or start a comment."""
    plain = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    escaped = plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(escaped)  # noqa: S704  no character that HTML knows is left


def _href(item: Item) -> str:
    """The address of an item's most telling case on the page."""
    result = item.lead.result
    return f"#{urlencode({'case': text.clean(result.case.id)})}" if result is not None else "#cases"


def _policy(style: str, script: str) -> str:
    def named(content: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; script-src {named(script)}; style-src {named(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _states(report: Report, changes: Changes) -> list[tuple[str, int]]:
    counted = aggregate.verdict(report, told=changes.told)
    return [(state.value, number) for state, number in counted.states.items() if number]


def _matrix(report: Report, changes: Changes) -> dict[str, Any]:
    grid = aggregate.matrix(report)
    known = aggregate.targets_by_id(report)
    changed = {(each.target, each.check, each.device): each.before for each in changes.capabilities}
    devices: dict[str, set[str]] = {}
    for target, _, device in grid.cells:
        devices.setdefault(target, set()).add(device)
    rows = []
    for target in grid.targets:
        cells = []
        for check in grid.checks:
            there = [(d, grid.cells.get((target, check, d))) for d in sorted(devices[target])]
            marks = [
                {"device": device, "state": state, "before": changed.get((target, check, device), "")}
                for device, state in there
                if state is not None
            ]
            alike = len({(mark["state"], mark["before"]) for mark in marks}) == 1
            cells.append([{**marks[0], "device": ""}] if alike else marks)
        trouble = any(mark["state"] in ("wrong", "broken", "inconclusive") for cell in cells for mark in cell)
        place = known[target].location if target in known else None
        rows.append(
            {
                "target": text.one_line(target),
                "place": text.one_line(f"{place.path}:{place.line}") if place else "",
                "trouble": trouble,
                "cells": cells,
            }
        )
    if len(rows) > _MOST_ROWS:
        rows.sort(key=lambda row: not row["trouble"])
    return {"checks": grid.checks, "rows": rows[:_MOST_ROWS], "rest": rows[_MOST_ROWS:]}


def _notes(report: Report) -> list[str]:
    return [messages.note_text(note) for note in report.notes]
