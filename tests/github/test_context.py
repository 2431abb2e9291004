"""What a job knows of itself, from the environment and the event that GitHub gives it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_github.state import REPOSITORY, sha

from gradbot.errors import UsageError
from gradbot.github.context import Context, read

HEAD, BASE = sha("head"), sha("base")
PULL = {
    "number": 7,
    "head": {"ref": "feature", "sha": HEAD, "repo": {"full_name": REPOSITORY}},
    "base": {"ref": "main", "sha": BASE},
}


def of(event_name: str, event: Any = None, **env: str) -> Context:
    given = {
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_EVENT_NAME": event_name,
        "GITHUB_EVENT_PATH": "event.json",
        "GITHUB_SHA": sha("merge"),
        "GITHUB_RUN_ID": "812",
        "GITHUB_RUN_ATTEMPT": "2",
        "GITHUB_WORKFLOW_REF": f"{REPOSITORY}/.github/workflows/ci.yml@refs/pull/7/merge",
        **env,
    }
    return read(given, lambda path: json.dumps(event or {}))


def test_a_pull_request_s_head_is_what_counts_not_the_merge_commit() -> None:
    context = of("pull_request", {"pull_request": PULL})
    assert (context.head_sha, context.sha) == (HEAD, sha("merge"))
    assert (context.run_id, context.attempt, context.workflow_path) == (812, 2, ".github/workflows/ci.yml")
    assert not context.from_fork


def test_a_fork_is_told_by_its_repository() -> None:
    fork = {**PULL, "head": {**PULL["head"], "repo": {"full_name": "mallory/kernels"}}}
    assert of("pull_request", {"pull_request": fork}).from_fork


def test_a_deleted_fork_counts_as_one() -> None:
    gone = {**PULL, "head": {**PULL["head"], "repo": None}}
    assert of("pull_request", {"pull_request": gone}).from_fork


def test_the_case_of_a_repository_s_name_makes_no_fork() -> None:
    same = {**PULL, "head": {**PULL["head"], "repo": {"full_name": REPOSITORY.upper()}}}
    assert not of("pull_request", {"pull_request": same}).from_fork


def test_a_push_has_its_own_commit() -> None:
    context = of("push", {"ref": "refs/heads/main"}, GITHUB_SHA=BASE)
    assert context.head_sha == BASE
    assert context.pull_request is None


def test_a_second_stage_knows_the_run_that_started_it() -> None:
    run = {
        "id": 700,
        "run_attempt": 3,
        "event": "pull_request",
        "head_sha": HEAD,
        "head_branch": "feature",
        "head_repository": {"full_name": "mallory/kernels"},
        "path": ".github/workflows/gradients.yml@main",
    }
    context = of("workflow_run", {"workflow_run": run, "repository": {"default_branch": "trunk"}})
    assert context.trigger is not None
    assert (context.trigger.id, context.trigger.attempt) == (700, 3)
    assert context.trigger.path == ".github/workflows/gradients.yml"
    assert (context.head_sha, context.default_branch, context.from_fork) == (HEAD, "trunk", True)
    assert context.run_url.endswith("/actions/runs/700")


def test_addresses_default_to_github_com_and_follow_the_environment() -> None:
    plain = of("push")
    assert (plain.api_url, plain.graphql_url) == ("https://api.github.com", "https://api.github.com/graphql")
    own = of("push", GITHUB_API_URL="https://git.corp/api/v3/", GITHUB_GRAPHQL_URL="https://git.corp/api/graphql")
    assert (own.api_url, own.graphql_url) == ("https://git.corp/api/v3", "https://git.corp/api/graphql")


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"GITHUB_REPOSITORY": ""}, "GITHUB_REPOSITORY"),
        ({"GITHUB_REPOSITORY": "a/b/c"}, "GITHUB_REPOSITORY"),
        ({"GITHUB_REPOSITORY": "../x"}, "GITHUB_REPOSITORY"),
        ({"GITHUB_RUN_ID": "12x"}, "GITHUB_RUN_ID"),
        ({"GITHUB_RUN_ATTEMPT": "-1"}, "GITHUB_RUN_ATTEMPT"),
    ],
)
def test_an_environment_that_is_none_is_one_clear_line(env: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        of("push", **env)


def test_an_event_file_that_cannot_be_read_is_one_clear_line() -> None:
    def missing(path: str) -> str:
        raise FileNotFoundError(path)

    with pytest.raises(UsageError, match="cannot be read"):
        read({"GITHUB_REPOSITORY": REPOSITORY, "GITHUB_EVENT_PATH": "gone.json"}, missing)
