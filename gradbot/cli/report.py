"""`gradbot report HEAD.json`: render a report, and compare it with its base or with accepted failures."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from gradbot.config import load
from gradbot.errors import UsageError
from gradbot.model import Report
from gradbot.report import aggregate, compare, files, html, junit, markdown, terminal
from gradbot.report.annotations import render as render_annotations
from gradbot.report.compare import Changes
from gradbot.report.markdown_parts import Links

_PATH = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is written and where; None for nothing."""

    markdown: Path | None
    summary: Path | None
    html: Path | None
    junit_xml: Path | None
    junit_family: str
    templates: Path | None
    source: Path | None


@click.command("report")
@click.argument("head", type=_PATH)
@click.option("--base", type=_PATH, help="Report of the base to compare with: a file or its folder.")
@click.option("--baseline", "baseline_path", type=_PATH, help="File of accepted failures; `baseline` of the config.")
@click.option("--markdown", "markdown_path", type=_PATH, help="Write the pull-request comment.")
@click.option("--summary", "summary_path", type=_PATH, help="Write the job summary.")
@click.option("--html", "html_path", type=_PATH, help="Write the page.")
@click.option("--junit-xml", "junit_path", type=_PATH, help="Write JUnit XML.")
@click.option("--junit-family", type=click.Choice(junit.FAMILIES), help="Its dialect (xunit1).")
@click.option("--annotations", "annotate", is_flag=True, help="Print workflow commands for GitHub Actions.")
@click.option("--fail-on", type=click.Choice(aggregate.FAIL_ON), help="What makes the exit code 1 (failures).")
@click.option("--link", default="", help="Where sources are on the web: https://host/owner/name/blob/SHA.")
@click.option("--run-link", default="", help="Where the run is on the web.")
@click.option("--source", type=_PATH, help="Root of the sources that the page quotes (the project's root).")
@click.option("--templates", type=_PATH, help="Folder of templates that override blocks of the markdown.")
@click.option("--verbose", "-v", is_flag=True, help="Every failure in full, on the terminal.")
@click.option("--config", "config_path", type=_PATH, help="Configuration file.")
def command(
    head: Path,
    base: Path | None,
    baseline_path: Path | None,
    markdown_path: Path | None,
    summary_path: Path | None,
    html_path: Path | None,
    junit_path: Path | None,
    junit_family: str | None,
    annotate: bool,
    fail_on: str | None,
    link: str,
    run_link: str,
    source: Path | None,
    templates: Path | None,
    verbose: bool,
    config_path: Path | None,
) -> int:
    """Render the report in the file or folder HEAD: on the terminal, and to every file that is asked for.

    \b
    gradbot report .gradbot/report.json --html report.html
    gradbot report head.json --base base.json --markdown comment.md
    """
    config = load(config_path, Path.cwd(), {}, os.environ)
    report = files.read_report(head)
    configured = Path(config.root) / config.baseline if config.baseline else None
    changes = _changes(report, base, baseline_path or configured)
    outputs = Outputs(
        markdown=markdown_path,
        summary=summary_path,
        html=html_path,
        junit_xml=junit_path,
        junit_family=junit_family or str(config.junit_family.value),
        templates=templates,
        source=source or Path(config.root),
    )
    _write(report, changes, outputs, Links(blob=link.rstrip("/"), run=run_link))
    if annotate:
        click.echo(render_annotations(report, changes), nl=False)
    else:
        compared = base is not None or changes.has_baseline
        _show(report, changes, verbose=verbose, compared=compared)
    return aggregate.verdict(report, fail_on or str(config.fail_on.value), changes.told).exit_code


def _changes(report: Report, base: Path | None, accepted: Path | None) -> Changes:
    return compare.compare(
        report,
        files.read_report(base) if base is not None else None,
        files.read_baseline(accepted) if accepted is not None else None,
    )


def _write(report: Report, changes: Changes, outputs: Outputs, links: Links) -> None:
    if outputs.templates is not None and not (outputs.markdown or outputs.summary):
        raise UsageError("--templates is for the markdown; give --markdown or --summary too")
    if outputs.markdown is not None:
        comment = markdown.comment(report, changes, links=links, templates=outputs.templates)
        files.write_text(outputs.markdown, comment)
    if outputs.summary is not None:
        summary = markdown.summary(report, changes, links=links, templates=outputs.templates)
        files.write_text(outputs.summary, summary)
    if outputs.html is not None:
        sources = files.read_sources(report, outputs.source) if outputs.source is not None else {}
        files.write_text(outputs.html, html.render(report, changes, links=links, sources=sources))
    if outputs.junit_xml is not None:
        files.write_text(outputs.junit_xml, junit.render(report, outputs.junit_family))


def _show(report: Report, changes: Changes, *, verbose: bool, compared: bool) -> None:
    width = shutil.get_terminal_size((100, 24)).columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    told = changes.told if compared else None
    click.echo(terminal.render(report, width=width, colour=colour, verbose=verbose, told=told), nl=False)
    if compared:
        for line in terminal.changes_lines(changes):
            click.echo(line)
