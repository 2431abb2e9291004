"""`gradbot publish`: one comment on the pull request, the job summary, annotations and outputs, from reports."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from gradbot import codec
from gradbot.config import CommentMode, Config, FailOn, help_for, load
from gradbot.errors import UsageError
from gradbot.github import context as contexts
from gradbot.github import gather
from gradbot.github.client import Client, Timing
from gradbot.github.comment import check_id
from gradbot.github.publish import Settings, Tools, publish
from gradbot.model import Report
from gradbot.report import baseline
from gradbot.report.baseline import Baseline


@click.command("publish")
@click.argument("reports", nargs=-1, type=click.Path())
@click.option("--dry-run", is_flag=True, help="Print exactly what would be sent, and send nothing.")
@click.option("--comment-id", help=help_for("comment_id"))
@click.option("--comment-mode", type=click.Choice([each.value for each in CommentMode]), help=help_for("comment_mode"))
@click.option("--fail-on", type=click.Choice([each.value for each in FailOn]), help=help_for("fail_on"))
@click.option("--artifact-name", default="gradbot-report", show_default=True, help="Prefix of the reports' artifacts.")
@click.option("--expect-shard", "shards", multiple=True, help="A shard that has to report, such as 1/2; repeatable.")
@click.option(
    "--base-workflow", default="", help="Workflow file whose runs hold base reports; the checking one if empty."
)
@click.option("--base-report", type=click.Path(), help="Compare with this report instead of looking for one.")
@click.option("--baseline", "baseline_path", help=help_for("baseline"))
@click.option("--annotations/--no-annotations", default=True, help="Print workflow commands that annotate the sources.")
@click.option("--gather/--no-gather", "gather_runs", default=True, help="Read the reports of the commit's other runs.")
@click.option("--strict-publish", is_flag=True, help="Fail where the comment cannot be posted.")
@click.option("--ca-bundle", default="", help="Certificates to trust, for a GitHub server of one's own.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Configuration file.")
@click.option("--output", "files", multiple=True, help="A further output of the step, NAME=VALUE; repeatable.")
def command(
    reports: tuple[str, ...],
    dry_run: bool,
    comment_id: str | None,
    comment_mode: str | None,
    fail_on: str | None,
    artifact_name: str,
    shards: tuple[str, ...],
    base_workflow: str,
    base_report: str | None,
    baseline_path: str | None,
    annotations: bool,
    gather_runs: bool,
    strict_publish: bool,
    ca_bundle: str,
    config_path: Path | None,
    files: tuple[str, ...],
) -> int:
    """Post REPORTS to the pull request: one comment, the job summary, annotations and outputs.

    REPORTS are report.json files or folders of them. In GitHub Actions the reports of all runs for the commit are read
    from their artifacts too. Imports neither torch nor the code that was checked.
    """
    overrides = {"comment_id": comment_id, "comment_mode": comment_mode, "fail_on": fail_on, "baseline": baseline_path}
    config = load(config_path, Path.cwd(), overrides, os.environ)
    settings = Settings(
        comment_id=check_id(config.comment_id),
        mode=config.comment_mode,
        fail_on=config.fail_on,
        artifact_prefix=artifact_name,
        expected_shards=shards,
        base_workflow=base_workflow,
        annotations=annotations,
        gather_runs=gather_runs,
        strict=strict_publish,
        dry_run=dry_run,
    )
    context = _context(reports, dry_run, ca_bundle)
    local = gather.from_files(reports, context)
    given = _read_report(base_report) if base_report else None
    return publish(
        settings,
        context,
        local,
        _tools(context),
        base_report=given,
        accepted=_accepted(config),
        files=dict(_named(each) for each in files),
    )


def _context(reports: tuple[str, ...], dry_run: bool, ca_bundle: str) -> contexts.Context:
    """The job's context; outside a job a dry run shows what a first comment would be."""
    if dry_run and not os.environ.get("GITHUB_REPOSITORY"):
        run = _read_report(reports[0]).run if reports and Path(reports[0]).is_file() else Report().run
        return contexts.local(run.repository, run.head_sha)
    return contexts.read(os.environ, lambda path: Path(path).read_text(encoding="utf-8"), ca_bundle=ca_bundle)


def _tools(context: contexts.Context) -> Tools:
    from gradbot.github.rendering import Rendered
    from gradbot.report.merge import merge

    return Tools(
        rendering=Rendered(),
        merge=merge,
        client=Client(context, Timing.from_environment(os.environ)) if context.token else None,
        emit=_print,
        sleep=time.sleep,
    )


def _print(line: str) -> None:
    """Print at once and as UTF-8, whatever the job's locale is."""
    sys.stdout.buffer.write(f"{line}\n".encode("utf-8", "backslashreplace"))
    sys.stdout.flush()


def _read_report(path: str) -> Report:
    try:
        return codec.loads(Path(path).read_bytes(), Report)
    except (OSError, codec.CodecError) as error:
        raise UsageError(f"{path}: {error}") from None


def _accepted(config: Config) -> Baseline | None:
    if not config.baseline:
        return None
    path = Path(config.root) / config.baseline
    try:
        return baseline.loads(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UsageError(f"{path}: the baseline cannot be read: {error.strerror}") from None


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--output is {text[:80]!r}; expected NAME=VALUE")
    return name, value
