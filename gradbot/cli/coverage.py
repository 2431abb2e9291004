"""`gradbot coverage`: which discovered targets are checked, by inputs from where, and which are not."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from gradbot import codec
from gradbot.errors import ExitCode, UsageError
from gradbot.model import Location, Report
from gradbot.report.coverage import Coverage, coverage


@click.command("coverage")
@click.option(
    "--report", "path", type=click.Path(path_type=Path), default=Path(".gradbot/report.json"), show_default=True
)
@click.option("--fail-under", type=float, default=0.0, metavar="PERCENT", help="Exit with 1 below this share.")
@click.option("--json", "json_path", metavar="PATH|-", help="Write the figures as JSON.")
def command(path: Path, fail_under: float, json_path: str | None) -> int:
    """Say which of the targets that the last `gradbot check` discovered are checked, and by inputs from where."""
    found = coverage(_read(path))
    if json_path == "-":
        click.echo(_as_json(found))
    else:
        if json_path:
            Path(json_path).write_text(_as_json(found) + "\n", encoding="utf-8")
        click.echo(_as_text(found))
    if found.percent < fail_under:
        click.echo(f"gradbot: {found.percent:.0f}% are checked, --fail-under asks for {fail_under:g}%", err=True)
        return ExitCode.WRONG
    return ExitCode.RIGHT


def _read(path: Path) -> Report:
    try:
        return codec.loads(path.read_bytes(), Report)
    except OSError as error:
        hint = "`gradbot check` writes it; --report names another"
        raise UsageError(f"cannot read {path}: {error.strerror}. {hint}") from None
    except codec.CodecError as error:
        raise UsageError(f"{path} is not a report: {error}") from None


def _as_json(found: Coverage) -> str:
    return json.dumps({**asdict(found), "percent": round(found.percent, 2)}, indent=2)


def _as_text(found: Coverage) -> str:
    sources = ", ".join(f"{count} by {source} inputs" for source, count in found.by_source.items())
    head = f"{found.checked} of {found.targets} targets are checked ({found.percent:.0f}%)"
    lines = [f"{head}: {sources}" if sources else head]
    if found.uncovered:
        lines += ["", "not checked:"]
        lines += [f"  {_place(each.location)} {each.target}: {each.reason}" for each in found.uncovered]
    return "\n".join(lines)


def _place(location: Location | None) -> str:
    return f"{location.path}:{location.line}" if location else "?"
