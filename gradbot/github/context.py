"""Where a publish runs: the environment and the event of a GitHub Actions job as one frozen value.

Everything that says which commit, run and pull request is meant comes from here or from the API, never from a report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradbot.errors import UsageError

API_URL = "https://api.github.com"
GRAPHQL_URL = "https://api.github.com/graphql"
SERVER_URL = "https://github.com"
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z")
_REPOSITORY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*/(?!\.\.?\Z)[A-Za-z0-9._-]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A pull request as the event or the API tells of it. `head_repository` is "" where the fork was deleted."""

    number: int
    head_sha: str
    head_ref: str
    head_repository: str
    base_sha: str
    base_ref: str
    state: str = "open"
    merge_sha: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRun:
    """One run of a workflow. `path` is the workflow's file, `.github/workflows/NAME.yml`."""

    id: int
    attempt: int
    event: str
    head_sha: str
    head_branch: str
    head_repository: str
    path: str
    status: str = "completed"
    conclusion: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One job. `token` is kept out of `repr`, so that no message can show it.

    `trigger` is the run that a `workflow_run` event tells of; `head_sha` is the pull request's head where the event
    has one, the trigger's where that started the job, else the commit of the job.
    """

    repository: str
    event: str
    sha: str
    head_sha: str
    run_id: int
    attempt: int
    workflow_path: str
    default_branch: str = ""
    actor: str = ""
    pull_request: PullRequest | None = None
    trigger: WorkflowRun | None = None
    api_url: str = API_URL
    graphql_url: str = GRAPHQL_URL
    server_url: str = SERVER_URL
    output_path: str = ""
    summary_path: str = ""
    ca_bundle: str = ""
    token: str = field(default="", repr=False)

    @property
    def from_fork(self) -> bool:
        """The commit that was checked comes from another repository."""
        source = self.trigger or self.pull_request
        return source is not None and source.head_repository.lower() != self.repository.lower()

    @property
    def run_url(self) -> str:
        """The page of the run that checked: the trigger's in a second stage."""
        return f"{self.server_url}/{self.repository}/actions/runs/{self.trigger.id if self.trigger else self.run_id}"


def read(env: Mapping[str, str], read_text: Callable[[str], str], *, ca_bundle: str = "") -> Context:
    """The context of this job.

    `env` is the environment, `read_text` opens the event's file. Raises `UsageError` outside GitHub Actions and for an
    event that is not what GitHub sends.
    """
    repository = env.get("GITHUB_REPOSITORY", "")
    if not _REPOSITORY.match(repository):
        raise UsageError(
            f"GITHUB_REPOSITORY is {repository[:80]!r}; expected owner/name. "
            "`gradbot publish` runs in a GitHub Actions job; `gradbot report` renders a report anywhere"
        )
    name, event = env.get("GITHUB_EVENT_NAME", ""), _read_event(env.get("GITHUB_EVENT_PATH", ""), read_text)
    try:
        pull_request = pull_request_of(event["pull_request"]) if event.get("pull_request") else None
        trigger = workflow_run_of(event["workflow_run"]) if name == "workflow_run" else None
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"the event {name!r} in GITHUB_EVENT_PATH is not what GitHub sends: {error}") from None
    sha = env.get("GITHUB_SHA", "")
    return Context(
        repository=repository,
        event=name,
        sha=sha,
        head_sha=pull_request.head_sha if pull_request else trigger.head_sha if trigger else sha,
        run_id=_number(env, "GITHUB_RUN_ID", 0),
        attempt=_number(env, "GITHUB_RUN_ATTEMPT", 1),
        workflow_path=_workflow_path(env.get("GITHUB_WORKFLOW_REF", ""), repository),
        default_branch=str((event.get("repository") or {}).get("default_branch") or ""),
        actor=env.get("GITHUB_ACTOR", ""),
        pull_request=pull_request,
        trigger=trigger,
        api_url=(env.get("GITHUB_API_URL") or API_URL).rstrip("/"),
        graphql_url=env.get("GITHUB_GRAPHQL_URL") or GRAPHQL_URL,
        server_url=(env.get("GITHUB_SERVER_URL") or SERVER_URL).rstrip("/"),
        output_path=env.get("GITHUB_OUTPUT", ""),
        summary_path=env.get("GITHUB_STEP_SUMMARY", ""),
        ca_bundle=ca_bundle or env.get("GRADBOT_CA_BUNDLE", ""),
        token=env.get("GITHUB_TOKEN", ""),
    )


def local(repository: str, head_sha: str) -> Context:
    """A context outside of any job, for a dry run."""
    known = repository if _REPOSITORY.match(repository) else "owner/repository"
    sha = head_sha if _SHA.match(head_sha) else "0" * 40
    return Context(repository=known, event="", sha=sha, head_sha=sha, run_id=0, attempt=1, workflow_path="")


def pull_request_of(raw: Mapping[str, Any]) -> PullRequest:
    """A pull request from GitHub's JSON, of an event or of the API."""
    head, base = raw["head"], raw["base"]
    return PullRequest(
        number=int(raw["number"]),
        head_sha=_sha(head["sha"]),
        head_ref=str(head["ref"]),
        head_repository=str((head.get("repo") or {}).get("full_name") or ""),
        base_sha=_sha(base["sha"]),
        base_ref=str(base["ref"]),
        state=str(raw.get("state") or "open"),
        merge_sha=str(raw.get("merge_commit_sha") or ""),
    )


def workflow_run_of(raw: Mapping[str, Any]) -> WorkflowRun:
    """A workflow run from GitHub's JSON, of an event or of the API."""
    return WorkflowRun(
        id=int(raw["id"]),
        attempt=int(raw.get("run_attempt") or 1),
        event=str(raw["event"]),
        head_sha=_sha(raw["head_sha"]),
        head_branch=str(raw.get("head_branch") or ""),
        head_repository=str((raw.get("head_repository") or {}).get("full_name") or ""),
        path=str(raw.get("path") or "").split("@")[0],
        status=str(raw.get("status") or ""),
        conclusion=str(raw.get("conclusion") or ""),
        url=str(raw.get("html_url") or ""),
    )


def _sha(raw: object) -> str:
    if not isinstance(raw, str) or not _SHA.match(raw):
        raise ValueError(f"expected a full commit sha, found {str(raw)[:80]!r}")
    return raw


def _read_event(path: str, read_text: Callable[[str], str]) -> dict[str, Any]:
    if not path:
        return {}
    try:
        event = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"the event at GITHUB_EVENT_PATH={path} cannot be read: {error}") from None
    if not isinstance(event, dict):
        raise UsageError(f"the event at GITHUB_EVENT_PATH={path} is not a JSON object")
    return event


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name) or str(default)
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{name} is {text[:80]!r}; expected a number")
    return int(text)


def _workflow_path(reference: str, repository: str) -> str:
    """`owner/name/.github/workflows/ci.yml@refs/heads/main` -> `.github/workflows/ci.yml`."""
    return reference.removeprefix(f"{repository}/").split("@")[0]
