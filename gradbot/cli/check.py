"""`gradbot check`: discover, find inputs, run every check in worker processes, write the reports, say what is wrong."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import click

from gradbot import codec
from gradbot.cli.progress import Shown
from gradbot.cli.selecting import Wanted, named_places, shown_path, wanted
from gradbot.config import Config, help_for, load
from gradbot.discover import static
from gradbot.errors import ExitCode, UsageError
from gradbot.model import Report, Shard
from gradbot.plan import Selection, ShardPlans, parse_shard
from gradbot.report import baseline, compare, junit, terminal
from gradbot.report.aggregate import verdict
from gradbot.report.compare import Changes
from gradbot.run import durations, supervisor
from gradbot.run.journal import write_report
from gradbot.run.provenance import describe
from gradbot.version import __version__

INTERRUPTED = 130


@click.command("check", short_help="Check the gradients of a package, path or target.")
@click.argument("words", nargs=-1, metavar="[PACKAGE|PATH|TARGET]...")
@click.option("--device", "devices", metavar="NAMES", help="Devices, separated by commas: cpu,cuda,mps,xpu.")
@click.option("--dtype", "dtypes", metavar="NAMES", help="Dtypes, separated by commas: float64,float32,bfloat16...")
@click.option("-k", "globs", multiple=True, metavar="GLOB", help="Only cases whose id matches; may be given again.")
@click.option("--case", "cases", multiple=True, metavar="NAME", help="Only this case, by name or id.")
@click.option("--seed", type=int, help=help_for("seed"))
@click.option("--mode", type=click.Choice(["auto", "fast", "exact"]), help=help_for("mode"))
@click.option("--timeout", type=float, metavar="SECONDS", help=help_for("timeout") + " [default: 60]")
@click.option("--jobs", "-j", metavar="N|auto", help=help_for("jobs"))
@click.option("--memory-limit", metavar="SIZE", help=help_for("memory_limit"))
@click.option("--retries", type=click.IntRange(0), help=help_for("retries"))
@click.option("--shard", metavar="I/N", help="Run one part of N; with --plan the parts take equally long.")
@click.option("--plan", "plan_path", type=click.Path(path_type=Path), help="A plan that `gradbot plan --output` wrote.")
@click.option("--python", metavar="EXE", help="The interpreter that has the packages and their torch.")
@click.option("--no-triton-interpret", is_flag=True, help="On the CPU, do not run Triton kernels in the interpreter.")
@click.option("--junit-xml", type=click.Path(path_type=Path), help="Write JUnit XML here too.")
@click.option("--json", "json_path", metavar="PATH|-", help="Write the report as JSON here too; - for standard output.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the page here too.")
@click.option(
    "--fail-on", type=click.Choice(["failures", "new-failures", "errors", "nothing"]), help=help_for("fail_on")
)
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Configuration file.")
@click.option("--verbose", "-v", is_flag=True, help="Every failure in full, and every case.")
@click.option("--quiet", "-q", is_flag=True, help="The last line only.")
def command(words: tuple[str, ...], config_path: Path | None, **options: Any) -> int:
    """Check the gradients of the custom Functions and ops of packages, folders, files, or of single targets.

    \b
    gradbot check                          the project in this folder
    gradbot check kernels                  a package
    gradbot check kernels.softcap:SoftCap  one Function
    gradbot check mylib::ragged_sum        one op

    \b
    Exit codes: 0 right; 1 something is wrong with the targets (failed,
    crashed, timed out, errored); 2 usage or configuration; 3 nothing was
    checked; 4 gradbot itself broke; 130 interrupted.
    """
    config = load(config_path, Path.cwd(), {**overrides(options), "packages": named_places(words)}, os.environ)
    chosen = wanted(words, config)
    out = Path(config.root) / config.output_dir
    stream = sys.stderr if options["json_path"] == "-" else sys.stdout
    with _without_commands(stream):
        report = _run(config, chosen, options, out, stream)
        seen = _judged(report, config)
        files = _write(report, seen.changes, config, out, options)
        _say(report, seen, files, options, stream)
    if options["json_path"] == "-":
        click.echo(codec.dumps(report))
    return INTERRUPTED if report.run.interrupted else seen.exit_code


def overrides(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are configuration, as configuration has them."""
    given = {name: options.get(name) for name in ("seed", "mode", "timeout", "memory_limit", "retries", "fail_on")}
    for name in ("devices", "dtypes"):
        if options.get(name):
            given[name] = tuple(each.strip() for each in options[name].split(",") if each.strip())
    jobs = options.get("jobs")
    if jobs:
        if jobs != "auto" and not (jobs.isdigit() and int(jobs) > 0):
            raise UsageError(f"--jobs: expected a number of processes or auto, found {jobs!r}")
        given["jobs"] = 0 if jobs == "auto" else int(jobs)
    if options.get("no_triton_interpret"):
        given["triton_interpret"] = False
    return given


def run_options(config: Config, options: Mapping[str, Any], out: Path) -> supervisor.Options:
    """How the supervisor runs, from configuration and command line."""
    root = Path(config.root)
    run = describe(
        root=root,
        environ=os.environ,
        command=("gradbot", *sys.argv[1:]),
        seed=config.seed,
        version=__version__,
        started=time.time(),
    )
    shard = parse_shard(options["shard"]) if options.get("shard") else (1, 1)
    plans = _shard_plans(options.get("plan_path"))
    if plans is not None and len(plans.shards) != shard[1]:
        raise UsageError(f"the plan has {len(plans.shards)} shards; expected --shard I/{len(plans.shards)}")
    return supervisor.Options(
        root=root,
        run=run,
        output=out,
        selection=Selection(globs=options["globs"], cases=options["cases"]),
        jobs=config.jobs,
        memory_limit=config.memory_limit_bytes,
        python=options["python"] or sys.executable,
        retries=config.retries,
        interpret_triton=config.triton_interpret,
        durations=durations.read(out / "durations.json"),
        shard=shard,
        shard_plans=plans,
        config=codec.encode(config),
        timeout_of=lambda target: config.settings_for(target).timeout,
        selects=config.selects_target,
        selects_rule=config.selects_rule,
    )


def _shard_plans(path: Path | None) -> ShardPlans | None:
    if path is None:
        return None
    try:
        return codec.loads(path.read_text("utf-8"), ShardPlans)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a plan of `gradbot plan --output`: {error}") from None


def _run(config: Config, chosen: Wanted, options: Mapping[str, Any], out: Path, stream: TextIO) -> Report:
    found = static.scan(chosen.places, root=Path(config.root), case_files=config.cases, python=options["python"] or "")
    made = replace(run_options(config, options, out), names=chosen.targets)
    shown = Shown(
        stream,
        where=", ".join(chosen.places),
        terminal=stream.isatty() and not os.environ.get("CI"),
        quiet=options["quiet"],
        verbose=options["verbose"],
    )
    earlier = _prepare(out)
    try:
        with shown:
            report = supervisor.run(found, made, shown)
    except UsageError:  # nothing ran, so the earlier run is still the last one
        for path, content in earlier.items():
            path.write_bytes(content)
        raise
    for pattern in config.unused_patterns(target.id for target in report.targets):
        click.echo(f"gradbot: note: {pattern!r} in {config.source or 'the configuration'} matches no target", err=True)
    durations.write(out / "durations.json", made.durations, report.results)
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """The run against what was accepted before."""

    changes: Changes | None
    exit_code: ExitCode


def _judged(report: Report, config: Config) -> _Judged:
    """A shard is judged by itself: that the others are missing is for whoever merges."""
    alone = _alone(report)
    changes = None
    if config.baseline:
        path = Path(config.root) / config.baseline
        try:
            accepted = baseline.loads(path.read_text("utf-8"), config.baseline)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
        changes = compare.compare(alone, None, accepted)
    told = changes.told if changes is not None else None
    return _Judged(changes=changes, exit_code=verdict(alone, config.fail_on.value, told).exit_code)


def _alone(report: Report) -> Report:
    return replace(report, shard=Shard(name=report.shard.name, expected=(report.shard.name,)))


def _prepare(out: Path) -> dict[Path, bytes]:
    """Reports of an earlier run must not be taken for this one's; they are taken away, and returned."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / ".gitignore").write_text("*\n", encoding="ascii")
        names = ("report.json", "junit.xml", "report.html")
        earlier = {out / name: (out / name).read_bytes() for name in names if (out / name).is_file()}
        for name in (*names, "journal.jsonl"):
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror}") from None
    return earlier


def _write(
    report: Report, changes: Changes | None, config: Config, out: Path, options: Mapping[str, Any]
) -> tuple[str, ...]:
    """Write every form of the report; returns the files' names."""
    from gradbot.report import html

    root = Path(config.root)
    write_report(report, out / "report.json")
    (out / "junit.xml").write_text(junit.render(report, config.junit_family.value), encoding="utf-8")
    (out / "report.html").write_text(html.render(report, changes, sources=_sources(report, root)), encoding="utf-8")
    (out / "journal.jsonl").unlink(missing_ok=True)
    asked = {"report.json": options["json_path"], "junit.xml": options["junit_xml"], "report.html": options["html"]}
    written = [shown_path(out / name) for name in asked]
    for name, path in asked.items():
        if path and path != "-":
            try:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(out / name, path)
            except OSError as error:
                raise UsageError(f"cannot write {path}: {error.strerror}") from None
            written.append(str(path))
    return tuple(written)


def _sources(report: Report, root: Path) -> dict[str, str]:
    """The texts of the sources that targets stand in, for excerpts."""
    paths = {place.path for target in report.targets for place in (target.location, *target.methods.values()) if place}
    texts = {}
    for path in sorted(paths):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            texts[path] = (root / path).read_text("utf-8")
    return texts


def _say(report: Report, seen: _Judged, files: tuple[str, ...], options: Mapping[str, Any], stream: TextIO) -> None:
    told = seen.changes.told if seen.changes is not None else None
    width = 1000 if options["quiet"] else shutil.get_terminal_size((120, 24)).columns
    colour = stream.isatty() and "NO_COLOR" not in os.environ
    alone = _alone(report)
    said = terminal.render(alone, width=width, colour=colour, verbose=options["verbose"], told=told, files=files)
    if options["quiet"]:
        said = said.rstrip("\n").rpartition("\n")[2] + "\n"
    stream.write(said if options["quiet"] else f"\n{said}")
    stream.flush()


@contextlib.contextmanager
def _without_commands(stream: TextIO) -> Iterator[None]:
    """In GitHub Actions, keep the runner from taking orders out of what is printed: names and output are the user's."""
    if not os.environ.get("GITHUB_ACTIONS"):
        yield
        return
    token = secrets.token_hex(16)
    stream.write(f"::stop-commands::{token}\n")
    stream.flush()
    try:
        yield
    finally:
        stream.write(f"\n::{token}::\n")
        stream.flush()
