"""`gradbot record -- COMMAND`: run a project's own tests, and keep inputs for the Functions and ops that they call."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gradbot import codec
from gradbot.config import Config, load
from gradbot.discover import static
from gradbot.errors import ExitCode, GradbotError, NothingCheckedError, UsageError
from gradbot.model import CaseResult, Discovery, Environment, Report, Run, Target, TargetKind
from gradbot.report import aggregate, terminal
from gradbot.version import __version__


@click.command("record", context_settings={"ignore_unknown_options": True})
@click.option("--package", "-p", "packages", multiple=True, help="Record this package only; may be given again.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Folder of recordings (gradbot_cases).")
@click.option("--prune", is_flag=True, help="Drop recordings that this run did not see.")
@click.option("--check", is_flag=True, help="Check every new kind of call right where it happens, in a forked copy.")
@click.option("--per-target", default=12, show_default=True, help="Samples kept of one target.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Configuration file.")
@click.argument("command_line", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    packages: tuple[str, ...],
    folder: Path | None,
    prune: bool,
    check: bool,
    per_target: int,
    config_path: Path | None,
    command_line: tuple[str, ...],
) -> int:
    """Run COMMAND and keep one sample per distinct call of the custom Functions and ops that it reaches.

    \b
    gradbot record -- pytest tests
    gradbot record -p kernels -- python train.py --steps 3

    The command runs as it would without gradbot and its exit code is returned; recordings are written as text that
    can be reviewed and committed, and `gradbot check` uses them.
    """
    config = load(config_path, Path.cwd(), {"packages": packages} if packages else {}, os.environ)
    found = static.scan(config.packages or (".",), root=Path(config.root))
    spool = Path(tempfile.mkdtemp(prefix="gradbot-record-"))
    try:
        code = _run(command_line, _environment(found, spool, check=check))
        summary = _collect(spool, folder or Path(config.root) / config.recorded, per_target, prune=prune)
        _say(summary, folder or Path(config.recorded))
        checked = _report(spool, config, command_line, found) if check else ExitCode.RIGHT
    finally:
        shutil.rmtree(spool, ignore_errors=True)
    if code:
        click.echo(f"gradbot: the command ended with {code}", err=True)
    return code or checked


def _environment(found: Discovery, spool: Path, *, check: bool) -> dict[str, str]:
    """The environment of the command: ours, and what starts recording in every Python process of it."""
    if not found.targets:
        raise NothingCheckedError("no custom Function or op was found to record; name a package with --package")
    home = Path(__file__).resolve().parents[2]
    bootstrap = str(home / "gradbot" / "record" / "bootstrap")
    wish = {
        "spool": str(spool),
        "packages": sorted({_package(target) for target in found.targets if target.kind is TargetKind.FUNCTION}),
        "namespaces": sorted({target.id.split("::")[0] for target in found.targets if target.kind is TargetKind.OP}),
        "check": check,
    }
    path = os.pathsep.join(filter(None, (bootstrap, os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path, "GRADBOT_RECORD": json.dumps(wish), "GRADBOT_RECORD_HOME": str(home)}


def _package(target: Target) -> str:
    return target.module.split(".", maxsplit=1)[0]


def _run(command_line: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit code of the command; of a signal, what a shell would give. An interrupt is the command's to answer."""
    try:
        process = subprocess.Popen(list(command_line), env=dict(environment))
    except OSError as error:
        raise UsageError(f"cannot run {command_line[0]}: {error.strerror}") from None
    with process:
        code = _waited(process)
    return code if code >= 0 else 128 - code


def _waited(process: subprocess.Popen[bytes]) -> int:
    """Wait for the command, also where Ctrl-C reaches both of us: what was seen until then is kept."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def _collect(spool: Path, folder: Path, per_target: int, *, prune: bool) -> dict[str, Any]:
    line = [sys.executable, "-m", "gradbot.record.collect", str(spool), str(folder), "--per-target", str(per_target)]
    done = subprocess.run([*line, *(["--prune"] if prune else [])], capture_output=True, text=True, check=False)
    try:
        summary: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise GradbotError(f"joining the recordings broke: {last}") from None
    if "error" in summary:
        raise UsageError(str(summary["error"]))
    return summary


def _say(summary: Mapping[str, Any], folder: Path) -> None:
    changed = f"{summary['added']} new, {summary['removed']} dropped"
    click.echo(
        f"gradbot: {summary['samples']} samples of {summary['targets']} targets in {folder} ({changed})", err=True
    )
    for target, reasons in summary["not_portable"].items():
        click.echo(f"  not written: {target}: {reasons[0]}; --check checks such calls in place", err=True)
    for problem in summary["problems"]:
        click.echo(f"  not seen whole: {problem}", err=True)


def _report(spool: Path, config: Config, command_line: Sequence[str], found: Discovery) -> int:
    """Write and show what was checked in place; the exit code of its verdict."""
    every = [codec.loads(path.read_text(), CaseResult) for path in sorted(spool.glob("*.result.json"))]
    results = _best_known(every)
    if not results:
        raise NothingCheckedError("no call of a custom Function or op was seen, so nothing was checked in place")
    checked = {result.case.target for result in results}
    report = Report(
        run=Run(
            tool_version=__version__,
            seconds=sum(result.seconds for result in results),
            command=("record", "--check", "--", *command_line),
        ),
        environments=(Environment(name="cpu", device="cpu"),),
        targets=tuple(target for target in found.targets if target.id in checked),
        results=tuple(sorted(results, key=lambda result: result.case.id)),
    )
    path = Path(config.root) / config.output_dir / "report.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(codec.dumps(report), encoding="utf-8")
    width = shutil.get_terminal_size((100, 24)).columns
    click.echo(terminal.render(report, width=width, colour=sys.stdout.isatty(), files=(str(path),)))
    return aggregate.verdict(report, str(config.fail_on.value)).exit_code


def _best_known(results: Sequence[CaseResult]) -> list[CaseResult]:
    """Without those for which it was assumed what requires grad, where another call of the target shows it."""
    shown = {result.case.target for result in results if not _is_assumed(result)}
    return [result for result in results if result.case.target not in shown or not _is_assumed(result)]


def _is_assumed(result: CaseResult) -> bool:
    return result.case.name.startswith("in-place-assumed-")
