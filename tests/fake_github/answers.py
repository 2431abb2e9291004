"""What the fake answers to each operation, from its state and GitHub's description."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from fake_github.description import filled
from fake_github.state import BODY_LIMIT, REPOSITORY, Artifact, Comment, Pull, Run, State, Token

Query = dict[str, list[str]]


@dataclass(kw_only=True)
class Answer:
    status: int = 200
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class Asked:
    """One request, taken apart."""

    state: State
    base: str
    blobs: str
    token: Token
    path: str
    query: Query
    body: bytes
    groups: tuple[str, ...] = ()

    def one(self, name: str) -> str | None:
        return self.query.get(name, [None])[0]


def problem(status: int, message: str, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status=status, content=json.dumps({"message": message}).encode(), headers=headers or {})


def answer(
    state: State, base: str, blobs: str, token: Token, method: str, path: str, query: Query, body: bytes
) -> Answer:
    """Serve one operation, with GitHub's 404 for what is not there."""
    asked = Asked(state=state, base=base, blobs=blobs, token=token, path=path, query=query, body=body)
    inside = path.removeprefix(f"/repos/{REPOSITORY}")
    if inside == path:
        return problem(404, "Not Found")
    for of_method, pattern, operation in OPERATIONS:
        if of_method == method and (match := re.fullmatch(pattern, inside)):
            asked.groups = match.groups()
            return operation(asked)
    return problem(404, "Not Found")


def _json(value: Any, status: int = 200, **headers: str) -> Answer:
    return Answer(status=status, content=json.dumps(value).encode(), headers=headers)


def _page(asked: Asked, items: Sequence[Any], show: Callable[[Any], Any], key: str = "") -> Answer:
    """One page with the Link header that leads on, 30 items unless asked for more, 100 at most."""
    size, page = min(int(asked.one("per_page") or 30), 100), int(asked.one("page") or 1)
    part = [show(each) for each in items[(page - 1) * size : page * size]]
    headers = {}
    if page * size < len(items):
        rest = {name: values[0] for name, values in asked.query.items()} | {"page": str(page + 1)}
        headers["Link"] = f'<{asked.base}{asked.path}?{urlencode(rest)}>; rel="next"'
    return _json({"total_count": len(items), key: part} if key else part, **headers)


def _user(login: str) -> dict[str, Any]:
    return filled("simple-user", login=login, type="Bot" if login.endswith("[bot]") else "User")


def _comment(asked: Asked, each: Comment) -> dict[str, Any]:
    url = f"{asked.base}/repos/{REPOSITORY}/issues/comments/{each.id}"
    return filled("issue-comment", id=each.id, body=each.body, user=_user(each.author), url=url)


def list_comments(asked: Asked) -> Answer:
    number = int(asked.groups[0])
    if number not in asked.state.pulls:
        return problem(404, "Not Found")
    found = sorted((each for each in asked.state.comments.values() if each.number == number), key=lambda each: each.id)
    return _page(asked, found, lambda each: _comment(asked, each))


def _refused(body: str) -> Answer | None:
    if not body.strip():
        return problem(422, "Validation Failed: body cannot be blank")
    if len(body) > BODY_LIMIT:
        return problem(422, f"Validation Failed: body is too long (maximum is {BODY_LIMIT} characters)")
    return None


def create_comment(asked: Asked) -> Answer:
    number, body = int(asked.groups[0]), json.loads(asked.body)["body"]
    if number not in asked.state.pulls:
        return problem(404, "Not Found")
    return _refused(body) or _json(_comment(asked, asked.state.comment(number, asked.token.login, body)), 201)


def one_comment(asked: Asked) -> Comment | None:
    return asked.state.comments.get(int(asked.groups[0]))


def update_comment(asked: Asked) -> Answer:
    comment, body = one_comment(asked), json.loads(asked.body)["body"]
    if comment is None:
        return problem(404, "Not Found")
    if comment.author != asked.token.login:
        return problem(403, "Resource not accessible by integration")
    if refused := _refused(body):
        return refused
    comment.body = body
    return _json(_comment(asked, comment))


def delete_comment(asked: Asked) -> Answer:
    if asked.state.comments.pop(int(asked.groups[0]), None) is None:
        return problem(404, "Not Found")
    return Answer(status=204)


def _pull(schema: str, pull: Pull) -> dict[str, Any]:
    def side(ref: str, sha: str, repository: str | None) -> dict[str, Any]:
        owner = (repository or REPOSITORY).split("/")[0]
        repo = repository and filled(
            "repository", full_name=repository, name=repository.split("/")[1], owner=_user(owner)
        )
        return {"ref": ref, "sha": sha, "label": f"{owner}:{ref}", "repo": repo, "user": _user(owner)}

    return filled(
        schema,
        number=pull.number,
        state=pull.state,
        user=_user("contributor"),
        head=side(pull.head_ref, pull.head_sha, pull.head_repository),
        base=side(pull.base_ref, pull.base_sha or "b" * 40, REPOSITORY),
    )


def get_pull(asked: Asked) -> Answer:
    pull = asked.state.pulls.get(int(asked.groups[0]))
    return _json(_pull("pull-request", pull)) if pull else problem(404, "Not Found")


def list_pulls(asked: Asked) -> Answer:
    head, state = asked.one("head"), asked.one("state") or "open"
    found = [
        each
        for each in asked.state.pulls.values()
        if state in (each.state, "all")
        and (head is None or head == f"{(each.head_repository or '?').split('/')[0]}:{each.head_ref}")
    ]
    return _page(asked, found, lambda each: _pull("pull-request-simple", each))


def pulls_of_commit(asked: Asked) -> Answer:
    found = [
        each
        for each in asked.state.pulls.values()
        if each.head_sha == asked.groups[0] and each.head_repository == REPOSITORY
    ]
    return _page(asked, found, lambda each: _pull("pull-request-simple", each))


def _run(asked: Asked, run: Run) -> dict[str, Any]:
    return filled(
        "workflow-run",
        id=run.id,
        head_sha=run.head_sha,
        head_branch=run.head_branch,
        event=run.event,
        path=run.path,
        status=run.status,
        conclusion=run.conclusion,
        run_attempt=run.attempt,
        head_repository=filled("minimal-repository", full_name=run.head_repository),
        html_url=f"{asked.base}/{REPOSITORY}/actions/runs/{run.id}",
    )


def get_run(asked: Asked) -> Answer:
    run = asked.state.runs.get(int(asked.groups[0]))
    return _json(_run(asked, run)) if run else problem(404, "Not Found")


def list_runs(asked: Asked) -> Answer:
    workflow = asked.groups[0] if asked.groups else None
    filters = {"head_sha": "head_sha", "branch": "head_branch", "event": "event", "status": "status"}
    found = [
        run
        for run in asked.state.runs.values()
        if (workflow is None or run.path.rsplit("/", 1)[-1] == workflow)
        and all(asked.one(name) in (None, getattr(run, attribute)) for name, attribute in filters.items())
    ]
    found.sort(key=lambda run: -run.id)
    return _page(asked, found, lambda run: _run(asked, run), "workflow_runs")


def list_artifacts(asked: Asked) -> Answer:
    run = int(asked.groups[0])
    if run not in asked.state.runs:
        return problem(404, "Not Found")

    def show(each: Artifact) -> dict[str, Any]:
        url = f"{asked.base}/repos/{REPOSITORY}/actions/artifacts/{each.id}"
        return filled(
            "artifact",
            id=each.id,
            name=each.name,
            size_in_bytes=len(each.data),
            expired=each.expired,
            url=url,
            archive_download_url=f"{url}/zip",
        )

    found = [each for each in asked.state.artifacts.values() if each.run == run]
    return _page(asked, found, show, "artifacts")


def download(asked: Asked) -> Answer:
    artifact = asked.state.artifacts.get(int(asked.groups[0]))
    if artifact is None:
        return problem(404, "Not Found")
    if artifact.expired:
        return problem(410, "Artifact has expired")
    return Answer(status=302, headers={"Location": f"{asked.blobs}/blob/{artifact.id}?sig=secret"})


def _commit(name: str) -> dict[str, Any]:
    return filled("commit", sha=name, author=_user("dev"), committer=_user("dev"))


def list_commits(asked: Asked) -> Answer:
    history, start = asked.state.history, asked.one("sha") or asked.state.history[0]
    found = history[history.index(start) :] if start in history else [start]
    return _page(asked, found, _commit)


def compare(asked: Asked) -> Answer:
    base, head = asked.groups
    common = asked.state.merge_bases.get((base, head))
    if common is None:
        return problem(404, "Not Found")
    return _json(filled("commit-comparison", base_commit=_commit(base), merge_base_commit=_commit(common)))


OPERATIONS: tuple[tuple[str, str, Callable[[Asked], Answer]], ...] = (
    ("GET", r"/issues/(\d+)/comments", list_comments),
    ("POST", r"/issues/(\d+)/comments", create_comment),
    ("PATCH", r"/issues/comments/(\d+)", update_comment),
    ("DELETE", r"/issues/comments/(\d+)", delete_comment),
    ("GET", r"/pulls/(\d+)", get_pull),
    ("GET", r"/pulls", list_pulls),
    ("GET", r"/commits/([0-9a-f]+)/pulls", pulls_of_commit),
    ("GET", r"/commits", list_commits),
    ("GET", r"/compare/([0-9a-f]+)\.\.\.([0-9a-f]+)", compare),
    ("GET", r"/actions/runs", list_runs),
    ("GET", r"/actions/runs/(\d+)", get_run),
    ("GET", r"/actions/runs/(\d+)/artifacts", list_artifacts),
    ("GET", r"/actions/workflows/([^/]+)/runs", list_runs),
    ("GET", r"/actions/artifacts/(\d+)/zip", download),
)
