"""`gradbot show CASE`: one case of a report in full."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from gradbot.config import load
from gradbot.errors import ExitCode, UsageError
from gradbot.model import CaseResult
from gradbot.report import files, terminal, text


@click.command("show")
@click.argument("case")
@click.option("--report", "report_path", type=click.Path(path_type=Path), help="The report (.gradbot/report.json).")
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Configuration file.")
def command(case: str, report_path: Path | None, config_path: Path | None) -> int:
    """Print CASE in full: its id, or a target, a case name or a part of an id, where these name few cases."""
    config = load(config_path, Path.cwd(), {}, os.environ)
    report = files.read_report(report_path or Path(config.root) / config.output_dir / "report.json")
    found = find(case, report.results)
    width = shutil.get_terminal_size((100, 24)).columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    click.echo("\n".join(terminal.render_case(each, width=width, colour=colour) for each in found), nl=False)
    return ExitCode.RIGHT


def find(name: str, results: Sequence[CaseResult], most: int = 5) -> Sequence[CaseResult]:
    """The cases that a name means: by id, else by target or case name, else by a part of the id.

    Raises `UsageError` where it means none, with the nearest ids, or too many, with some of them.
    """
    ways = (
        [each for each in results if each.case.id == name],
        [each for each in results if name in (each.case.target, each.case.name)],
        [each for each in results if name.lower() in each.case.id.lower()],
    )
    found = next((some for some in ways if some), [])
    ids = [text.one_line(each.case.id) for each in found or results]
    if not found:
        near = difflib.get_close_matches(name, ids, n=3, cutoff=0.3)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise UsageError(f"no case {name!r} among the {text.plural(len(results), 'case')} of the report{hint}")
    if len(found) > most:
        shown = ", ".join(ids[:most])
        raise UsageError(f"{name!r} means {len(found)} cases; name one of them: {shown}, ...")
    return found
