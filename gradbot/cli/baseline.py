"""`gradbot baseline`: keep the failures that a repository has accepted, so that only new ones fail."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gradbot.config import load
from gradbot.errors import ExitCode
from gradbot.report import baseline, files, text
from gradbot.report.baseline import Baseline, Entry

_PATH = click.Path(path_type=Path)


@click.group("baseline")
def command() -> None:
    """Keep known failures in a file that is committed: only new ones fail, and those that are gone are named."""


@command.command("update")
@click.argument("report_path", metavar="[REPORT]", required=False, type=_PATH)
@click.option("--baseline", "baseline_path", type=_PATH, help=f"The file ({baseline.DEFAULT_PATH}).")
@click.option("--all", "everything", is_flag=True, help="Forget entries that the report says nothing about.")
@click.option("--config", "config_path", type=_PATH, help="Configuration file.")
def update(report_path: Path | None, baseline_path: Path | None, everything: bool, config_path: Path | None) -> int:
    """Accept every failure of REPORT (.gradbot/report.json), and drop entries that no longer fail.

    Entries that the report says nothing about, because it covers other devices or targets, stay.
    """
    report, path = _inputs(report_path, baseline_path, config_path)
    found = files.read_report(report)
    old = files.read_baseline(path) if path.is_file() else Baseline()
    new = baseline.from_report(found) if everything else baseline.updated(old, found)
    files.write_text(path, baseline.dumps(new))
    added, dropped = set(new.entries) - set(old.entries), set(old.entries) - set(new.entries)
    click.echo(
        f"{path}: {text.plural(len(new.entries), 'accepted failure')} ({len(added)} added, {len(dropped)} dropped)"
    )
    for sign, entries in (("+", added), ("-", dropped)):
        for entry in sorted(entries):
            click.echo(f"  {sign} {_line(entry)}")
    return ExitCode.RIGHT


@command.command("check")
@click.argument("report_path", metavar="[REPORT]", required=False, type=_PATH)
@click.option("--baseline", "baseline_path", type=_PATH, help=f"The file ({baseline.DEFAULT_PATH}).")
@click.option("--config", "config_path", type=_PATH, help="Configuration file.")
def check(report_path: Path | None, baseline_path: Path | None, config_path: Path | None) -> int:
    """Name stale entries: failures that are accepted and no longer there. Exit code 1 where there are any."""
    report, path = _inputs(report_path, baseline_path, config_path)
    stale = baseline.stale(files.read_baseline(path), files.read_report(report))
    for entry in stale:
        click.echo(f"stale: {_line(entry)}")
    click.echo(f"{path}: {text.plural(len(stale), 'stale entry', 'stale entries')}")
    return ExitCode.WRONG if stale else ExitCode.RIGHT


def _inputs(report: Path | None, path: Path | None, config_path: Path | None) -> tuple[Path, Path]:
    config = load(config_path, Path.cwd(), {}, os.environ)
    root = Path(config.root)
    chosen = path or root / (config.baseline or baseline.DEFAULT_PATH)
    return report or root / config.output_dir / "report.json", chosen


def _line(entry: Entry) -> str:
    where = f" ({entry.dtype} on {entry.device})" if entry.device else ""
    return text.one_line(f"{entry.target} {entry.check} {entry.kind}{where}")
