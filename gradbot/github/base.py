"""The report to compare with: of the newest run that finished on the base branch, at or before the merge base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradbot.github.client import Client, RequestError
from gradbot.github.context import PullRequest, WorkflowRun
from gradbot.github.gather import Merge, Names, from_runs, joined, of_commit
from gradbot.model import Report

TRUSTED_EVENTS = frozenset({"push", "schedule", "workflow_dispatch", "merge_group"})
"""Events that only somebody with write access causes. A pull request's run has the base branch in its name too."""
_HISTORY = 300
_RUNS = 200
_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What was found. `words` says so, or why there is none."""

    report: Report | None = None
    sha: str = ""
    words: str = ""


def find(client: Client, pull: PullRequest, workflow_path: str, names: Names, merge: Merge) -> Base:
    """The base report of a pull request, read from the artifacts of the run that made it.

    A run counts whether it succeeded or failed, if it has completed, comes from this repository, a trusted event and
    the same workflow file, and its commit is the merge base or an ancestor of it.
    """
    try:
        merge_base = client.merge_base(pull.base_sha, pull.head_sha)
        history = {sha: distance for distance, sha in enumerate(client.history(merge_base, _HISTORY))}
        runs = client.completed_runs(workflow_path, pull.base_ref, _RUNS)
        for run in _candidates(runs, history, workflow_path, client.context.repository)[:_TRIES]:
            held = from_runs(client, [run], names, hostile=False)
            found = of_commit(held, client.context.repository, run.head_sha, [run.head_sha])
            if found.parts:
                words = f"compared with {pull.base_ref}@{run.head_sha[:7]}"
                report = joined(found, merge, ())
                told = replace(report.run, branch=pull.base_ref)
                return Base(report=replace(report, run=told), sha=run.head_sha, words=words)
    except RequestError as error:
        return Base(words=f"no base report could be read: {error}")
    return Base(words=f"no report found on {pull.base_ref} at or before {merge_base[:7]}")


def _candidates(
    runs: Sequence[WorkflowRun], history: dict[str, int], workflow_path: str, repository: str
) -> list[WorkflowRun]:
    """Usable runs, those nearest to the merge base first, of one commit the newest first."""
    usable = [
        run
        for run in runs
        if run.status == "completed"
        and run.event in TRUSTED_EVENTS
        and run.head_repository.lower() == repository.lower()
        and run.path == workflow_path
        and run.head_sha in history
    ]
    return sorted(usable, key=lambda run: (history[run.head_sha], -run.id))
