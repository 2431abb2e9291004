"""What was discovered, as a table for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradbot.model import Discovery, Offers, Target, TargetKind


def render(found: Discovery, *, width: int = 100, colour: bool = False) -> str:
    """Targets by package with place, offers and cases; what could not be imported and why; a line of counts."""
    parts: list[RenderableType] = []
    for package in sorted({target.package for target in found.targets}):
        parts += [_table(found, package), ""]
    parts += [Text(line, style="yellow") for line in problem_lines(found)]
    parts += [Text(f"note: {note}", style="yellow") for note in found.notes]
    if found.problems or found.notes:
        parts.append("")
    parts.append(Text(_summary(found), style="bold"))
    buffer = io.StringIO()
    console = Console(
        file=buffer, width=width, force_terminal=colour, no_color=not colour, highlight=False, emoji=False
    )
    console.print(Group(*parts))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _table(found: Discovery, package: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in (package or "(no package)", "place", "offers", "cases"):
        table.add_column(Text(name), overflow="fold")
    imported = any(target.seen != "static" for target in found.targets)
    for target in found.targets:
        if target.package == package:
            count = cases_text(found, target)
            style = "" if count != "none" else "yellow"
            offers = offers_text(target) + (", not seen at import" if imported and target.seen == "static" else "")
            row = (_name(target), place_text(target), offers)
            table.add_row(*(Text(each) for each in row), Text(count, style=style))
    return table


def _name(target: Target) -> str:
    mark = " (op)" if target.kind is TargetKind.OP else " (callable)" if target.kind is TargetKind.CALLABLE else ""
    return target.id + mark


def problem_lines(found: Discovery) -> list[str]:
    """One line a reason, for a package that cannot be imported takes all its modules along."""
    by_reason: dict[str, list[str]] = {}
    for problem in found.problems:
        by_reason.setdefault(problem.reason, []).append(problem.module)
    lines = []
    for reason, modules in by_reason.items():
        more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
        lines.append(f"could not import {modules[0]}{more}: {reason}")
    return lines


def place_text(target: Target) -> str:
    """`path:line`; paths outside the project from the package on."""
    location = target.location
    if location is None:
        return "?"
    top = f"/{target.module.partition('.')[0]}/"
    inside = location.path.rpartition(top)[2] if location.path.startswith("/") and top in location.path else ""
    return f"{top[1:]}{inside}:{location.line}" if inside else f"{location.path}:{location.line}"


def offers_text(target: Target) -> str:
    """What a target offers, in a few words."""
    offers = target.offers
    if target.kind is TargetKind.CALLABLE:
        return ""
    if offers == Offers():
        return "known once it is made"
    words = _op_words(target) if target.kind is TargetKind.OP else _function_words(offers)
    return ", ".join(words)


def _function_words(offers: Offers) -> Iterable[str]:
    if not offers.backward:
        yield "no backward"
    elif offers.once_differentiable:
        yield "backward (once differentiable)"
    else:
        yield "backward"
    if offers.jvp:
        yield "jvp"
    if offers.setup_context:
        yield "setup_context"
    if offers.vmap == "rule":
        yield "vmap"
    if offers.vmap == "generated":
        yield "generated vmap"


def _op_words(target: Target) -> Iterable[str]:
    yield "autograd" if target.offers.autograd_formula else "no autograd"
    if target.offers.fake_kernel:
        yield "fake"
    if target.offers.vmap in ("rule", "generated"):
        yield "vmap"
    if target.triton:
        yield "triton"


def cases_text(found: Discovery, target: Target) -> str:
    """How many cases a target has; before they were collected, how many generators of cases are written for it."""
    known = found.case_ids.get(target.id, ())
    if known:
        return str(len(known))
    return "declared" if found.declared.get(target.id) and not found.case_ids else "none"


def _summary(found: Discovery) -> str:
    kinds = {kind: sum(target.kind is kind for target in found.targets) for kind in TargetKind}
    if not found.targets:
        return "no custom Functions or registered ops found"
    words = {TargetKind.FUNCTION: "Function", TargetKind.OP: "op", TargetKind.CALLABLE: "callable"}
    counts = [f"{count} {words[kind]}{'' if count == 1 else 's'}" for kind, count in kinds.items() if count]
    with_cases = sum(cases_text(found, target) != "none" for target in found.targets)
    parts = [", ".join(counts), f"{with_cases} with cases, {len(found.targets) - with_cases} without"]
    if found.problems:
        parts.append(f"{len(found.problems)} not imported")
    return " · ".join(parts)
