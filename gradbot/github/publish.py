"""Publishing, as a chain of plain stages: find the pull request, gather, compare, render, tell.

Everything that touches the world is an argument. What cannot be posted is said and changes no verdict, unless asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradbot.config import CommentMode, FailOn
from gradbot.errors import ExitCode
from gradbot.github import base as base_search
from gradbot.github import commands, comment, gather, target
from gradbot.github.base import Base
from gradbot.github.client import Client, RequestError
from gradbot.github.comment import COMMENT_LIMIT, Marker, Wanted
from gradbot.github.context import Context, PullRequest
from gradbot.github.gather import Gathered, Merge, Names
from gradbot.github.page import Page, Rendering, make_page, outputs_of
from gradbot.model import Report
from gradbot.report.aggregate import Verdict
from gradbot.report.baseline import Baseline

_ANNOTATIONS_A_LEVEL = 10
_READ_ONLY = (
    "A token that may only read is usual for pull requests from forks and of Dependabot: the summary and the report "
    "artifact hold everything, and the two-stage workflow posts comments for forks"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a publish was asked to do."""

    comment_id: str = "gradbot"
    mode: CommentMode = CommentMode.ALWAYS
    fail_on: FailOn = FailOn.FAILURES
    artifact_prefix: str = "gradbot-report"
    expected_shards: tuple[str, ...] = ()
    base_workflow: str = ""  # the workflow file that keeps base reports; "": the one that checked
    annotations: bool = True
    gather_runs: bool = True
    strict: bool = False
    dry_run: bool = False

    @property
    def names(self) -> Names:
        """Which artifacts hold the reports."""
        return Names(prefix=self.artifact_prefix, comment_id=self.comment_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The collaborators. `client` is None without a token, `emit` prints a line, `sleep` waits."""

    rendering: Rendering
    merge: Merge
    client: Client | None
    emit: Callable[[str], None]
    sleep: Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """What became of the comment. `problem` says what went wrong."""

    comment: int = 0
    words: str = ""
    problem: str = ""


def publish(
    settings: Settings,
    context: Context,
    local: Gathered,
    tools: Tools,
    *,
    base_report: Report | None = None,
    accepted: Baseline | None = None,
    files: dict[str, str] | None = None,
) -> int:
    """Tell everybody. Returns the exit code: the verdict's, as `fail_on` judges it.

    `local` are the reports at hand, `base_report` and `accepted` what to compare with where they are given, `files`
    further outputs by name.
    """
    found = _pull_request(tools.client, context)
    gathered = _gather(settings, context, local, found.pull, tools.client)
    base = _base(settings, context, found.pull, base_report, tools)
    page = make_page(
        context,
        gathered,
        base,
        accepted,
        tools.merge,
        expected_shards=settings.expected_shards,
        fail_on=settings.fail_on,
    )
    posted = _post(settings, page, gathered, found, tools)
    _tell(settings, page, posted, tools, files or {})
    return _exit_code(settings, page.verdict, posted)


def _pull_request(client: Client | None, context: Context) -> target.Found:
    if client is None:
        return target.Found(pull=context.pull_request, words="there is no token to look for a pull request with")
    try:
        return target.find(client, context)
    except RequestError as error:
        return target.Found(words=f"the pull request cannot be looked up: {error}")


def _gather(
    settings: Settings, context: Context, local: Gathered, pull: PullRequest | None, client: Client | None
) -> Gathered:
    """Everything that was reported on the head commit, and nothing else. Outside of a job there is no such commit."""
    found = local
    if not context.run_id:
        return found
    if client is not None and settings.gather_runs:
        found = local + gather.gather_runs(client, context, pull, settings.names)
    checked_out = [context.head_sha, pull.merge_sha if pull else ""]
    if context.trigger is None:  # a second stage has the default branch's commit here
        checked_out.append(context.sha)
    return gather.of_commit(found, context.repository, context.head_sha, checked_out)


def _base(settings: Settings, context: Context, pull: PullRequest | None, given: Report | None, tools: Tools) -> Base:
    if given is not None:
        sha = given.run.checked_out_sha or given.run.head_sha
        return Base(report=given, sha=sha, words="compared with the report that was given")
    if tools.client is None or pull is None:
        return Base()
    workflow = settings.base_workflow or (context.trigger.path if context.trigger else context.workflow_path)
    return base_search.find(tools.client, pull, workflow, settings.names, tools.merge)


def wanted_comment(settings: Settings, page: Page, gathered: Gathered, rendering: Rendering) -> Wanted:
    """The comment as it should stand on the pull request."""
    job = page.context.trigger
    attempts = {job.id: job.attempt} if job else {page.context.run_id: page.context.attempt}
    for part in gathered.parts:
        attempts[part.run] = max(attempts.get(part.run, 0), part.attempt)
    marker = Marker(
        id=settings.comment_id,
        sha=page.context.head_sha,
        run=max(attempts),
        attempt=sum(attempts.values()),
        parts=len(gathered.parts),
        red=not page.verdict.right,
    )
    text = rendering.comment(page, COMMENT_LIMIT - len(f"{marker}\n"))
    fixed_or_new = bool(page.changes.fixed) or page.verdict.new > 0
    return Wanted(marker=marker, text=text, differs=fixed_or_new or marker.red)


def _post(settings: Settings, page: Page, gathered: Gathered, found: target.Found, tools: Tools) -> Posted:
    if settings.mode is CommentMode.OFF:
        return Posted()
    wanted = wanted_comment(settings, page, gathered, tools.rendering)
    if settings.dry_run:
        return _would_post(settings, page, wanted, found, tools)
    if found.pull is None or tools.client is None:
        return Posted(words=f"no comment: {found.words}")
    client, number, head = tools.client, found.pull.number, page.context.head_sha
    try:
        outcome = comment.publish(
            client,
            number,
            client.viewer(),
            wanted,
            settings.mode,
            still_wanted=lambda: client.pull_request(number).head_sha == head,
            believe=lambda marker: _is_run(client, marker),
            sleep=tools.sleep,
            settle=client.timing.settle,
        )
    except RequestError as error:
        if error.forbidden:
            return Posted(words=f"no comment: {error}. {_READ_ONLY}")
        return Posted(problem=f"the comment could not be posted: {error}")
    return Posted(comment=outcome.comment, words=f"comment {outcome.done}")


def _is_run(client: Client, marker: Marker) -> bool:
    """Whether the run that a marker names checked the commit that it names."""
    try:
        return client.run(marker.run).head_sha == marker.sha
    except RequestError as error:
        if error.gone:
            return False
        raise


def _would_post(settings: Settings, page: Page, wanted: Wanted, found: target.Found, tools: Tools) -> Posted:
    """Say exactly what would be sent; reads, but writes nothing."""
    repository, number = page.context.repository, found.pull.number if found.pull else 0
    step = comment.Step(do="create", body=wanted.body)
    if tools.client is not None and found.pull is not None:
        try:
            step = comment.next_step(tools.client.comments(number), tools.client.viewer(), wanted, settings.mode)
        except RequestError as error:
            return Posted(problem=f"the comments cannot be read: {error}")
    if step.do == "none":
        tools.emit(f"would send no comment: {step.why}")
        return Posted(comment=step.comment, words=step.why)
    where = {
        "create": f"POST /repos/{repository}/issues/{number or '<pull request>'}/comments",
        "update": f"PATCH /repos/{repository}/issues/comments/{step.comment}",
        "delete": f"DELETE /repos/{repository}/issues/comments/{step.comment}",
    }[step.do]
    tools.emit(f"would send {where}")
    commands.quoted(step.body, tools.emit)
    return Posted(comment=step.comment, words="dry run")


def _tell(settings: Settings, page: Page, posted: Posted, tools: Tools, files: dict[str, str]) -> None:
    """The summary, the annotations, the outputs and what there is to say about the comment."""
    context, rendering = page.context, tools.rendering
    room = commands.summary_room(context.summary_path) if context.summary_path else commands.SUMMARY_LIMIT
    summary = rendering.summary(page, room)
    annotations: Sequence[str] = ()
    if settings.annotations and context.trigger is None:  # a second stage's annotations would land on another run
        annotations = rendering.annotations(page, _ANNOTATIONS_A_LEVEL)
    outputs = outputs_of(page, posted.comment, files)
    if settings.dry_run:
        tools.emit("would add to the job summary")
        commands.quoted(summary, tools.emit)
        tools.emit("would annotate" if annotations else "would annotate nothing")
        commands.quoted("\n".join(annotations), tools.emit)
        tools.emit("would set the outputs")
        commands.quoted("\n".join(f"{name}={value}" for name, value in outputs.items()), tools.emit)
    else:
        for line in annotations:
            tools.emit(line)
        if context.summary_path:
            commands.append_summary(context.summary_path, summary)
        if context.output_path:
            commands.write_outputs(context.output_path, outputs)
    for remark in page.remarks:
        commands.say("warning", remark, tools.emit)
    if posted.problem:
        commands.say("warning", posted.problem, tools.emit)
    elif posted.words:
        commands.say("notice", posted.words, tools.emit)


def _exit_code(settings: Settings, verdict: Verdict, posted: Posted) -> int:
    if settings.strict and posted.problem and verdict.exit_code is ExitCode.RIGHT:
        return ExitCode.BROKEN
    if settings.fail_on is FailOn.NOTHING:
        return ExitCode.RIGHT
    return verdict.exit_code
