"""`gradbot discover`: the custom Functions and ops of a package, what each offers, and whether it has cases."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from gradbot import codec
from gradbot.config import Config, load
from gradbot.discover import static
from gradbot.errors import ExitCode, UsageError
from gradbot.model import Case, Discovery, Run
from gradbot.report.targets import render
from gradbot.run import supervisor
from gradbot.version import __version__


@click.command("discover")
@click.argument("places", nargs=-1, metavar="[PACKAGE|PATH]...")
@click.option("--json", "json_path", metavar="PATH|-", help="Write what was found as JSON.")
@click.option("--python", metavar="EXE", help="The interpreter that has the packages and their torch.")
@click.option("--all", "third_party", is_flag=True, help="Also what other packages register when these are imported.")
@click.option("--static-only", is_flag=True, help="Read the sources only; import nothing.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Configuration file.")
def command(
    places: tuple[str, ...],
    json_path: str | None,
    python: str | None,
    third_party: bool,
    static_only: bool,
    config_path: Path | None,
) -> int:
    """List the custom Functions and registered ops of packages, folders or files.

    \b
    gradbot discover                  the project in this folder
    gradbot discover kernels          an installed package, or a folder
    gradbot discover csrc/ops.py --static-only

    Sources are read first, without running anything; then each module is imported in a worker process, which shows
    what it really registers.
    """
    config = load(config_path, Path.cwd(), {"packages": places}, os.environ)
    found = static.scan(
        config.packages or (".",),
        root=Path(config.root),
        case_files=config.cases,
        python=python or "",
        third_party=third_party,
    )
    if not static_only:
        found = _imported(found, config, python or sys.executable)
    if json_path == "-":
        click.echo(codec.dumps(found, indent=2))
        return ExitCode.RIGHT
    if json_path:
        _write(Path(json_path), codec.dumps(found, indent=2) + "\n")
    terminal = sys.stdout.isatty()
    click.echo(render(found, width=_width(), colour=terminal and "NO_COLOR" not in os.environ), nl=False)
    return ExitCode.RIGHT


def _imported(found: Discovery, config: Config, python: str) -> Discovery:
    """Completed by a worker that imports the modules; with a note instead where no worker can be had."""
    options = supervisor.Options(
        root=Path(config.root), run=Run(tool_version=__version__), jobs=1, python=python, config=codec.encode(config)
    )
    try:
        collected = supervisor.collect_only(found, options)
    except UsageError as error:
        return replace(found, notes=(*found.notes, f"nothing was imported, this is what the sources say: {error}"))
    if collected is None:
        raise click.Abort
    complete, plan = collected
    return replace(complete.discovery, case_ids=_by_target(plan.cases))


def _by_target(cases: Sequence[Case]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for case in cases:
        found[case.target] = (*found.get(case.target, ()), case.id)
    return found


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _width() -> int:
    return max(
        60, int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size().columns if sys.stdout.isatty() else 120
    )
