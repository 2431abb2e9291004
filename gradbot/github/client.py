"""GitHub's API as publishing needs it, over PyGithub. Reads are retried here; writes never are.

A write that failed may still have happened, so blindly sending it again makes second comments and old contents. The
caller reads again first (`comment.publish`); `RequestError` tells it whether and when another try makes sense.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gradbot.errors import UsageError
from gradbot.github.context import Context, PullRequest, WorkflowRun, pull_request_of, workflow_run_of

if TYPE_CHECKING:
    import github

_RETRIED = (429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long is waited, in seconds. The defaults follow GitHub's advice for its secondary limits."""

    request: int = 20  # for an answer
    tries: int = 5
    backoff: float = 2.0  # doubled with each try
    secondary: float = 60.0  # after a secondary limit that names no time
    longest: float = 120.0  # a limit that asks for more ends the attempt
    between_writes: float = 1.0
    settle: float = 2.0  # before a written comment is read again

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Timing:
        """The defaults, scaled by `GRADBOT_PUBLISH_PACE`: below 1 for a server without limits. Raises `UsageError`."""
        text = environ.get("GRADBOT_PUBLISH_PACE", "1")
        try:
            pace = float(text)
        except ValueError:
            pace = -1.0
        if not 0 <= pace <= 10:
            raise UsageError(f"GRADBOT_PUBLISH_PACE is {text[:40]!r}; expected a number from 0 to 10")
        plain = cls()
        return replace(
            plain,
            backoff=plain.backoff * pace,
            secondary=plain.secondary * pace,
            between_writes=plain.between_writes * pace,
            settle=plain.settle * pace,
        )


class RequestError(Exception):
    """A request that did not succeed.

    `wait` is how long to wait before another try; `None`: no try helps. `limited`: GitHub asks for fewer requests.
    """

    def __init__(self, message: str, *, status: int = 0, wait: float | None = None, limited: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.wait = wait
        self.limited = limited

    @property
    def forbidden(self) -> bool:
        """The token may not do this, as with the read-only token of a fork's pull request."""
        return self.status in (401, 403) and not self.limited

    @property
    def gone(self) -> bool:
        """What was asked for is not there, or no longer."""
        return self.status in (404, 410)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment of an issue or pull request."""

    id: int
    author: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """An artifact of a run, not expired."""

    id: int
    name: str
    size: int
    url: str
    run_id: int


class Client:
    """Requests to one repository. Every method raises `RequestError`."""

    def __init__(self, context: Context, timing: Timing | None = None) -> None:
        self.context = context
        self.timing = timing or Timing()
        self._rest = self._connect(context.api_url)
        self._path = f"/repos/{context.repository}"

    def viewer(self) -> str:
        """The login that the token writes as: whose comments are ours."""
        graphql = self._connect(self.context.graphql_url.removesuffix("/graphql")).requester
        query = {"query": "query { viewer { login } }"}
        for attempt in range(self.timing.tries):
            try:
                _, answer = self._call(graphql.requestJsonAndCheck, "POST", self.context.graphql_url, input=query)
                break
            except RequestError as failure:  # a query changes nothing, so this POST may be sent again
                if failure.wait is None or attempt + 1 == self.timing.tries:
                    raise
                time.sleep(failure.wait)
        login = ((answer.get("data") or {}).get("viewer") or {}).get("login")
        if not isinstance(login, str) or not login:
            raise RequestError(
                f"GitHub did not say whom the token belongs to: {str(answer.get('errors'))[:200]}", status=401
            )
        return login

    def comments(self, number: int) -> tuple[Comment, ...]:
        """All comments of a pull request, over all pages, oldest first."""
        raw = self._pages(f"{self._path}/issues/{number}/comments")
        found = (
            Comment(id=each["id"], author=(each.get("user") or {}).get("login") or "", body=each.get("body") or "")
            for each in raw
        )
        return tuple(sorted({each.id: each for each in found}.values(), key=lambda each: each.id))

    def create_comment(self, number: int, body: str) -> None:
        """Write a new comment. Sent once."""
        self._write("POST", f"{self._path}/issues/{number}/comments", {"body": body})

    def update_comment(self, comment: int, body: str) -> None:
        """Replace a comment's body. Sent once."""
        self._write("PATCH", f"{self._path}/issues/comments/{comment}", {"body": body})

    def delete_comment(self, comment: int) -> None:
        """Delete a comment. Sent once."""
        self._write("DELETE", f"{self._path}/issues/comments/{comment}", None)

    def pull_request(self, number: int) -> PullRequest:
        """The pull request as it is now."""
        return pull_request_of(self._get(f"{self._path}/pulls/{number}"))

    def pull_requests_of_head(self, owner: str, branch: str) -> tuple[PullRequest, ...]:
        """Open pull requests from `owner`'s branch."""
        pages = self._pages(f"{self._path}/pulls", state="open", head=f"{owner}:{branch}")
        return tuple(pull_request_of(each) for each in pages)

    def pull_requests_of_commit(self, sha: str) -> tuple[PullRequest, ...]:
        """Pull requests that hold a commit."""
        return tuple(pull_request_of(each) for each in self._pages(f"{self._path}/commits/{sha}/pulls"))

    def run(self, run: int) -> WorkflowRun:
        """A workflow run with its newest attempt."""
        return workflow_run_of(self._get(f"{self._path}/actions/runs/{run}"))

    def runs_of_head(self, sha: str) -> tuple[WorkflowRun, ...]:
        """The runs of every workflow for one head commit, newest first."""
        pages = self._pages(f"{self._path}/actions/runs", "workflow_runs", head_sha=sha)
        return tuple(workflow_run_of(each) for each in pages)

    def completed_runs(self, workflow_path: str, branch: str, limit: int) -> tuple[WorkflowRun, ...]:
        """The newest completed runs of one workflow file on a branch; completed, whatever their result."""
        path = f"{self._path}/actions/workflows/{workflow_path.rsplit('/', 1)[-1]}/runs"
        pages = self._pages(path, "workflow_runs", branch=branch, status="completed")
        return tuple(workflow_run_of(each) for each, _ in zip(pages, range(limit), strict=False))

    def artifacts(self, run: int) -> tuple[Artifact, ...]:
        """The artifacts of a run that can still be had."""
        return tuple(
            Artifact(
                id=each["id"],
                name=each["name"],
                size=each["size_in_bytes"],
                url=each["archive_download_url"],
                run_id=run,
            )
            for each in self._pages(f"{self._path}/actions/runs/{run}/artifacts", "artifacts")
            if not each["expired"]
        )

    def merge_base(self, base: str, head: str) -> str:
        """The commit that two commits have in common."""
        return str(self._get(f"{self._path}/compare/{base}...{head}", per_page=1)["merge_base_commit"]["sha"])

    def history(self, sha: str, limit: int) -> tuple[str, ...]:
        """A commit and what came before it, newest first."""
        pages = self._pages(f"{self._path}/commits", sha=sha)
        return tuple(each["sha"] for each, _ in zip(pages, range(limit), strict=False))

    def _connect(self, base_url: str) -> github.Github:
        from github import Auth, Github, GithubRetry

        logging.getLogger("github").setLevel(logging.WARNING)  # PyGithub prints a line for every retry
        timing, context = self.timing, self.context
        retry = GithubRetry(
            total=timing.tries - 1,
            backoff_factor=timing.backoff,
            status_forcelist=list(_RETRIED),
            allowed_methods={"GET"},
            secondary_rate_wait=timing.secondary,
            max_rate_limit_wait=timing.longest,
            retry_after_max=int(timing.longest),
        )
        return Github(
            auth=Auth.Token(context.token) if context.token else None,
            base_url=base_url,
            timeout=timing.request,
            retry=retry,
            verify=context.ca_bundle or True,
            per_page=100,
            user_agent="gradbot",
            seconds_between_requests=0,
            seconds_between_writes=timing.between_writes,
            lazy=True,
        )

    def _get(self, path: str, **parameters: object) -> Any:
        return self._call(self._rest.requester.requestJsonAndCheck, "GET", path, parameters=parameters)[1]

    def _pages(self, path: str, key: str = "", **parameters: object) -> Iterator[Any]:
        """The items of every page. The next page is where the answer's Link header says, as GitHub asks for."""
        url: str | None = path
        query: Mapping[str, object] | None = {"per_page": 100, **parameters}
        while url:
            headers, data = self._call(self._rest.requester.requestJsonAndCheck, "GET", url, parameters=query)
            yield from data[key] if key else data
            url, query = _next_page(headers.get("link", "")), None

    def _write(self, method: str, path: str, payload: object) -> None:
        self._call(self._rest.requester.requestJsonAndCheck, method, path, input=payload)

    def _call(self, request: Callable[..., tuple[Any, Any]], *arguments: object, **options: object) -> tuple[Any, Any]:
        import requests
        from github import GithubException

        what = f"{arguments[0]} {arguments[1]}"
        try:
            headers, data = request(*arguments, **options)
        except GithubException as error:
            message = error.data.get("message") if isinstance(error.data, dict) else error.data
            raise self.failure(what, error.status, error.headers or {}, str(message)) from None
        except requests.RequestException as error:
            raise RequestError(f"{what}: {type(error).__name__}", wait=self.timing.backoff) from None
        return headers, data

    def failure(self, what: str, status: int, headers: Mapping[str, str], message: str) -> RequestError:
        """The error that an answer stands for, with the time to wait before another try."""
        limited = _limited(status, headers, message)
        wait = _wait(status, headers, limited, self.timing)
        return RequestError(f"{what}: {status} {message[:200]}", status=status, wait=wait, limited=limited)


def _limited(status: int, headers: Mapping[str, str], message: str) -> bool:
    return status == 429 or (status == 403 and ("retry-after" in headers or "rate limit" in message.lower()))


def _wait(status: int, headers: Mapping[str, str], limited: bool, timing: Timing) -> float | None:
    """Seconds to wait before another try of a request that got this answer; `None`: it would get the same again."""
    if not limited:
        return timing.backoff if status in _RETRIED else None
    asked = headers.get("retry-after", "")
    wait = float(asked) if asked.isdigit() else timing.secondary
    if headers.get("x-ratelimit-remaining") == "0" and not asked and headers.get("x-ratelimit-reset", "").isdigit():
        wait = max(0.0, int(headers["x-ratelimit-reset"]) - time.time()) + 1
    return wait if wait <= timing.longest else None


def _next_page(link: str) -> str | None:
    for part in link.split(","):
        target, _, relation = part.partition(";")
        if 'rel="next"' in relation:
            return target.strip().strip("<>")
    return None
