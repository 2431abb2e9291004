"""All reports of one head commit: files at hand and the artifacts of every workflow run that checked it.

Of each shard of each workflow the newest attempt counts, so nothing is counted twice and whoever ends last replaces
nothing. What a fork made is read under tighter caps, and what it says about where it comes from is replaced by what
the event and the API say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from gradbot import codec
from gradbot.errors import UsageError
from gradbot.github.artifacts import ArchiveCaps, ArtifactName, BadArtifactError, download, parse_name, read_member
from gradbot.github.client import Client, RequestError
from gradbot.github.context import Context, PullRequest, WorkflowRun
from gradbot.model import Report, Shard

Merge = Callable[[Sequence[Report]], Report]
HOSTILE_ARCHIVE = ArchiveCaps(packed=16 << 20, members=16, unpacked=codec.HOSTILE_CAPS.bytes)
_ARTIFACTS_AT_MOST = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One shard's report and the run that made it. `artifact` is the id of what holds it, 0 for a file at hand."""

    report: Report
    workflow: str
    run: int
    attempt: int
    artifact: int = 0

    @property
    def place(self) -> tuple[str, str]:
        return self.workflow, self.report.shard.name

    @property
    def age(self) -> tuple[int, int]:
        """Grows with every newer run and attempt."""
        return self.run, self.attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The newest part of every shard, and what could not be read, in words."""

    parts: tuple[Part, ...] = ()
    remarks: tuple[str, ...] = ()

    def __add__(self, other: Gathered) -> Gathered:
        return Gathered(parts=newest((*self.parts, *other.parts)), remarks=(*self.remarks, *other.remarks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Which artifacts hold reports for one comment."""

    prefix: str
    comment_id: str

    def of(self, name: str) -> ArtifactName | None:
        return parse_name(name, self.prefix, self.comment_id)


def newest(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Of each shard of each workflow the newest attempt of the newest run, in a stable order."""
    kept: dict[tuple[str, str], Part] = {}
    for part in parts:
        if part.place not in kept or part.age >= kept[part.place].age:
            kept[part.place] = part
    newest_run = {workflow: max(p.run for p in kept.values() if p.workflow == workflow) for workflow, _ in kept}
    return tuple(kept[place] for place in sorted(kept) if kept[place].run == newest_run[place[0]])


def from_files(paths: Sequence[str], context: Context) -> Gathered:
    """Reports at hand: files, or folders that hold `report*.json` at any depth.

    Raises `UsageError` for a path that is not there, and for a file named outright that is no report.
    """
    source = context.trigger
    run, workflow = (source.id, source.path) if source else (context.run_id, context.workflow_path)
    caps = codec.HOSTILE_CAPS if context.from_fork else codec.DEFAULT_CAPS
    parts: list[Part] = []
    remarks: list[str] = []
    for text in paths:
        path = Path(text)
        if not path.exists():
            raise UsageError(f"{text}: there is no such report or folder")
        for each in sorted(path.rglob("report*.json")) if path.is_dir() else [path]:
            try:
                report = codec.loads(each.read_bytes(), Report, caps=caps)
            except (codec.CodecError, OSError) as error:
                if not path.is_dir():
                    raise UsageError(f"{text}: {error}") from None
                remarks.append(f"{each.relative_to(path)} cannot be used: {error}")
                continue
            parts.append(Part(report=report, workflow=workflow, run=run, attempt=report.run.attempt))
    return Gathered(parts=newest(parts), remarks=tuple(remarks))


def from_runs(client: Client, runs: Sequence[WorkflowRun], names: Names, *, hostile: bool) -> Gathered:
    """The reports among the artifacts of these runs. `hostile`: made by the code of a fork."""
    parts: list[Part] = []
    remarks: list[str] = []
    budget = _ARTIFACTS_AT_MOST
    for run in runs:
        for artifact in client.artifacts(run.id):
            name = names.of(artifact.name)
            if name is None or name.attempt > run.attempt:
                continue
            budget -= 1
            if budget < 0:
                remarks.append(f"only {_ARTIFACTS_AT_MOST} artifacts were read")
                break
            try:
                archive_caps = HOSTILE_ARCHIVE if hostile else ArchiveCaps()
                text = read_member(download(client, artifact, archive_caps), archive_caps)
                report = codec.loads(text, Report, caps=codec.HOSTILE_CAPS if hostile else codec.DEFAULT_CAPS)
            except (BadArtifactError, codec.CodecError) as error:
                remarks.append(f"the report in {artifact.name} cannot be used: {error}")
                continue
            made = Part(report=report, workflow=run.path, run=run.id, attempt=name.attempt, artifact=artifact.id)
            parts.append(made)
    return Gathered(parts=newest(parts), remarks=tuple(remarks))


def runs_to_read(client: Client, context: Context, pull: PullRequest | None) -> tuple[WorkflowRun, ...]:
    """One run of every workflow file for the head commit, of the same kind of event and the same repository.

    Of this job's own workflow (or the trigger's) it is that very run: a second pull request from the same head has runs
    of its own. Of every other workflow it is the newest.
    """
    source = context.trigger
    event = source.event if source else context.event
    repository = source.head_repository if source else pull.head_repository if pull else context.repository
    head = pull.head_sha if pull else context.head_sha
    found = [
        run
        for run in client.runs_of_head(head)
        if run.event == event and run.head_sha == head and run.head_repository.lower() == repository.lower()
    ]
    kept: dict[str, WorkflowRun] = {}
    for run in sorted(found, key=lambda run: (run.id == context.run_id, run.id)):
        kept[run.path] = run
    if source:
        kept[source.path] = source
    return tuple(kept[path] for path in sorted(kept))


def of_commit(gathered: Gathered, repository: str, head_sha: str, checked_out: Iterable[str]) -> Gathered:
    """The parts that are of this commit, with their origin as the event and the API tell it.

    A report that names another head is not used: it is left over, or made up. `checked_out` are the commits that may
    have been checked out: the head, and the merge commit of the pull request.
    """
    known = set(checked_out)
    parts: list[Part] = []
    remarks: list[str] = []
    for part in gathered.parts:
        run = part.report.run
        if run.head_sha not in ("", head_sha):
            shown = run.head_sha[:7] if run.head_sha.isalnum() else "something else"
            remarks.append(f"a report of {shown} was left out: {head_sha[:7]} is to be reported on")
            continue
        told = replace(
            run,
            repository=repository,
            head_sha=head_sha,
            checked_out_sha=run.checked_out_sha if run.checked_out_sha in known else head_sha,
            ci_run=str(part.run or ""),
            attempt=part.attempt,
        )
        parts.append(replace(part, report=replace(part.report, run=told)))
    return Gathered(parts=tuple(parts), remarks=(*gathered.remarks, *remarks))


def joined(gathered: Gathered, merge: Merge, expected: Sequence[str]) -> Report:
    """One report of all parts. `expected` names the shards where the caller knows better than the reports.

    Where several workflows reported, their shards are told apart by the workflow's file name.
    """
    workflows = {part.workflow for part in gathered.parts}
    if not gathered.parts:
        return Report(shard=Shard(name="", expected=tuple(expected) or Shard().expected), shards_seen=())
    if len(workflows) == 1:
        merged = merge([part.report for part in gathered.parts])
        return replace(merged, shard=replace(merged.shard, expected=tuple(expected))) if expected else merged
    by_workflow = {
        workflow: [part.report for part in gathered.parts if part.workflow == workflow]
        for workflow in sorted(workflows)
    }
    all_expected = [
        _prefixed(workflow, name) for workflow, reports in by_workflow.items() for name in _expected_of(reports)
    ]
    renamed = [
        replace(
            report,
            shard=Shard(name=_prefixed(workflow, report.shard.name), expected=tuple(all_expected)),
            shards_seen=tuple(_prefixed(workflow, name) for name in report.shards_seen),
        )
        for workflow, reports in by_workflow.items()
        for report in reports
    ]
    return merge(renamed)


def _expected_of(reports: Sequence[Report]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for report in reports for name in report.shard.expected))


def _prefixed(workflow: str, shard: str) -> str:
    return f"{PurePosixPath(workflow).stem}:{shard}"


def gather_runs(client: Client, context: Context, pull: PullRequest | None, names: Names) -> Gathered:
    """The reports that the API has for the head commit; what cannot be had is a remark, not an end."""
    try:
        runs = runs_to_read(client, context, pull)
        return from_runs(client, runs, names, hostile=context.from_fork)
    except RequestError as error:
        return Gathered(remarks=(f"reports of other runs cannot be read: {error}",))
