"""`gradbot plan`: cut the work into shards for a CI matrix."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gradbot import codec
from gradbot.cli.check import overrides, run_options
from gradbot.cli.selecting import named_places, wanted
from gradbot.config import help_for, load
from gradbot.discover import static
from gradbot.errors import ExitCode, NothingCheckedError, UsageError
from gradbot.model import Discovery, Target
from gradbot.plan import Plan, ShardPlans, cut, units
from gradbot.report import text
from gradbot.run import supervisor


@click.command("plan", short_help="Cut the work into shards for a CI matrix.")
@click.argument("words", nargs=-1, metavar="[PACKAGE|PATH|TARGET]...")
@click.option("--shards", default="auto", show_default=True, metavar="N|auto", help="auto: about five minutes each.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "github-matrix"]), default="text", show_default=True
)
@click.option("--output", type=click.Path(path_type=Path), help="Write the plan here, for `gradbot check --plan`.")
@click.option("--device", "devices", metavar="NAMES", help="Devices, separated by commas: cpu,cuda,mps,xpu.")
@click.option("--dtype", "dtypes", metavar="NAMES", help="Dtypes, separated by commas.")
@click.option("-k", "globs", multiple=True, metavar="GLOB", help="Only cases whose id matches; may be given again.")
@click.option("--case", "cases", multiple=True, metavar="NAME", help="Only this case, by name or id.")
@click.option("--seed", type=int, help=help_for("seed"))
@click.option("--jobs", "-j", metavar="N|auto", help=help_for("jobs"))
@click.option("--python", metavar="EXE", help="The interpreter that has the packages and their torch.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Configuration file.")
def command(
    words: tuple[str, ...], shards: str, form: str, output: Path | None, config_path: Path | None, **options: Any
) -> int:
    """Cut the cases into shards of even length, by the durations of earlier runs, each device with its own.

    \b
    gradbot plan kernels --shards 4 --format github-matrix --output plan.json
    gradbot check kernels --shard 3/4 --plan plan.json
    gradbot merge shard-*.json

    The matrix is one line of JSON, for `strategy: matrix: ${{ fromJSON(...) }}`. Give every shard the same plan file:
    targets whose modules import on another machine only (one with a GPU) are planned from their sources, and expanded
    by the shard that they went to.
    """
    config = load(config_path, Path.cwd(), {**overrides(options), "packages": named_places(words)}, os.environ)
    chosen = wanted(words, config)
    found = static.scan(chosen.places, root=Path(config.root), case_files=config.cases, python=options["python"] or "")
    made = replace(run_options(config, options, Path(config.root) / config.output_dir), names=chosen.targets)
    collected = supervisor.collect_only(found, made)
    if collected is None:
        raise click.Abort
    complete, plan = collected
    unexpanded = _unexpanded(plan, complete.discovery, config.devices)
    whole = {target for target, _ in unexpanded}
    cases = [case for case in plan.cases if case.target not in whole]
    parts = cut(units(cases, made.durations, unexpanded), _count(shards))
    if not any(each.keys for each in parts.shards):
        raise NothingCheckedError("there is no case to plan; `gradbot discover` lists targets and their cases")
    if output is not None:
        try:
            output.write_text(codec.dumps(parts) + "\n", encoding="ascii")
        except OSError as error:
            raise UsageError(f"cannot write {output}: {error.strerror}") from None
    written: dict[str, Callable[[ShardPlans], str]] = {"text": as_text, "json": codec.dumps, "github-matrix": as_matrix}
    click.echo(written[form](parts))
    return ExitCode.RIGHT


def as_matrix(parts: ShardPlans) -> str:
    """The value of a GitHub matrix: one job a shard, with its name, its place and its device."""
    rows = [
        {"shard": each.name, "index": number, "total": len(parts.shards), "device": ",".join(each.devices)}
        for number, each in enumerate(parts.shards, 1)
    ]
    return json.dumps({"include": rows}, separators=(",", ":"))


def as_text(parts: ShardPlans) -> str:
    """One line a shard."""
    lines = [
        f"{each.name:>7}  {','.join(each.devices):<6} {text.plural(len(each.keys), 'unit'):>10}  "
        f"about {text.duration(each.seconds)}"
        for each in parts.shards
    ]
    return "\n".join(lines)


def _unexpanded(plan: Plan, found: Discovery, devices: Sequence[str]) -> list[tuple[str, str]]:
    """Targets that have cases declared but cannot be imported here, with the devices to check them on.

    A module that needs a GPU to be imported is planned from its sources; the machine that gets it finds its cases.
    """
    failed = {problem.module for problem in found.problems} | {problem.path for problem in found.problems}
    wanted = {case.target for case in plan.cases} | {each.target for each in plan.unchecked}
    return [
        (target.id, device)
        for target in found.targets
        if target.id in wanted and target.id in found.declared and _fails(target, found, failed)
        for device in devices
    ]


def _fails(target: Target, found: Discovery, failed: set[str]) -> bool:
    files = {place.rpartition(":")[0] for place in found.declared[target.id]}
    return target.module in failed or bool(files & failed)


def _count(shards: str) -> int | None:
    if shards == "auto":
        return None
    if not shards.isdigit() or int(shards) < 1:
        raise UsageError(f"--shards: expected a number or auto, found {shards!r}")
    return int(shards)
