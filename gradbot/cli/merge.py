"""`gradbot merge`: join the reports of several shards."""

from __future__ import annotations

import glob
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from gradbot import codec
from gradbot.config import help_for, load
from gradbot.errors import UsageError
from gradbot.model import Report
from gradbot.report import junit, terminal
from gradbot.report.aggregate import verdict
from gradbot.report.merge import merge, missing
from gradbot.run.journal import recover, write_report


@click.command("merge", short_help="Join the reports of several shards.")
@click.argument("paths", nargs=-1, required=True, metavar="REPORT...")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Where to write it. [default: .gradbot/report.json]"
)
@click.option("--junit-xml", type=click.Path(path_type=Path), help="Write JUnit XML here.")
@click.option(
    "--fail-on", type=click.Choice(["failures", "new-failures", "errors", "nothing"]), help=help_for("fail_on")
)
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Configuration file.")
@click.option("--quiet", "-q", is_flag=True, help="The last line only.")
def command(
    paths: tuple[str, ...],
    output: Path | None,
    junit_xml: Path | None,
    fail_on: str | None,
    config_path: Path | None,
    quiet: bool,
) -> int:
    """Join reports: of shards, of devices, of attempts. For each case its newest attempt stands.

    \b
    gradbot merge shard-*.json
    gradbot merge artifacts/**/report.json -o report.json

    A REPORT may also be the journal.jsonl of a run that was killed. Shards that should be there and are not, or were
    cut short, are named, and make the exit code 1. Exit codes are those of `gradbot check`.
    """
    config = load(config_path, Path.cwd(), {"fail_on": fail_on}, os.environ)
    joined = merge([_read(path) for path in _expand(paths)])
    target = output or Path(config.root) / config.output_dir / "report.json"
    try:
        write_report(joined, target)
        if junit_xml is not None:
            junit_xml.write_text(junit.render(joined, config.junit_family.value), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or target}: {error.strerror}") from None
    gone = missing(joined)
    width = 1000 if quiet else shutil.get_terminal_size((120, 24)).columns
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    said = terminal.render(joined, width=width, colour=colour, files=(str(target),))
    click.echo(said.rstrip("\n").rpartition("\n")[2] if quiet else said.rstrip("\n"))
    if gone:
        click.echo(f"gradbot: missing or cut short: {', '.join(gone)}", err=True)
    return verdict(joined, config.fail_on.value).exit_code


def _expand(paths: Iterable[str]) -> list[Path]:
    """The files that were named; patterns that the shell left alone are expanded."""
    found: list[Path] = []
    for path in paths:
        matches = (
            sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) and not Path(path).exists() else [path]
        )
        found += [Path(match) for match in matches]
    if not found:
        raise UsageError(f"no report matches {' '.join(paths)}")
    return found


def _read(path: Path) -> Report:
    if path.suffix == ".jsonl":
        return recover(path)
    try:
        return codec.loads(path.read_bytes(), Report)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a report: {error}") from None
