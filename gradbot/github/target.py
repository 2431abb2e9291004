"""Which pull request a job speaks to: from the trusted event and the API, never from a report."""

from __future__ import annotations

from dataclasses import dataclass

from gradbot.github.client import Client
from gradbot.github.context import Context, PullRequest

_CHECKED_EVENTS = frozenset({"pull_request", "push", "merge_group", "workflow_dispatch", "schedule"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The pull request, or why there is none."""

    pull: PullRequest | None = None
    words: str = ""


def find(client: Client, context: Context) -> Found:
    """The open pull request that a job's result belongs to. Raises `RequestError`."""
    if context.trigger is not None:
        return _of_trigger(client, context)
    if context.pull_request is not None:
        return Found(pull=context.pull_request)
    same = [
        pull
        for pull in client.pull_requests_of_commit(context.head_sha)
        if pull.state == "open"
        and pull.head_sha == context.head_sha
        and pull.head_repository.lower() == context.repository.lower()
    ]
    return _one(same, context)


def _of_trigger(client: Client, context: Context) -> Found:
    """The pull request of the run that started this one.

    `workflow_run.pull_requests` is empty for forks, so it is looked up by what GitHub itself says of the run: its head
    repository, branch and commit. All three must match.
    """
    run = context.trigger
    assert run is not None
    if run.event not in _CHECKED_EVENTS:
        return Found(words=f"runs that {run.event} started are not reported on")
    if not run.head_repository or not run.head_branch:
        return Found(words="the run's head repository or branch is gone")
    owner = run.head_repository.split("/")[0]
    same = [
        pull
        for pull in client.pull_requests_of_head(owner, run.head_branch)
        if pull.head_sha == run.head_sha
        and pull.head_ref == run.head_branch
        and pull.head_repository.lower() == run.head_repository.lower()
    ]
    return _one(same, context)


def _one(pulls: list[PullRequest], context: Context) -> Found:
    """Of several from one head, the one into the default branch, else the oldest."""
    if not pulls:
        return Found(words=f"no open pull request has {context.head_sha[:7]} as its head")
    return Found(pull=min(pulls, key=lambda pull: (pull.base_ref != context.default_branch, pull.number)))
