"""What the fake GitHub holds: pull requests, comments, commits, runs, artifacts, tokens, and the faults to come."""

from __future__ import annotations

import io
import threading
import zipfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

REPOSITORY = "octo/kernels"
BOT = "github-actions[bot]"
BODY_LIMIT = 65_536


def sha(name: str) -> str:
    """A commit id that is easy to tell apart: the name's letters as hexadecimal."""
    return (name.encode().hex() + "0" * 40)[:40]


@dataclass(kw_only=True)
class Comment:
    id: int
    number: int
    author: str
    body: str


@dataclass(kw_only=True)
class Pull:
    number: int
    head_sha: str
    head_ref: str = "feature"
    head_repository: str | None = REPOSITORY
    base_sha: str = ""
    base_ref: str = "main"
    state: str = "open"


@dataclass(kw_only=True)
class Run:
    id: int
    head_sha: str
    head_branch: str = "feature"
    event: str = "pull_request"
    path: str = ".github/workflows/gradients.yml"
    status: str = "completed"
    conclusion: str | None = "success"
    head_repository: str = REPOSITORY
    attempt: int = 1


@dataclass(kw_only=True)
class Artifact:
    id: int
    run: int
    name: str
    data: bytes
    expired: bool = False


@dataclass(frozen=True, kw_only=True)
class Token:
    login: str = BOT
    write: bool = True
    read: bool = True


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with a request. `after`: the write happens all the same. Status 0: the line goes dead."""

    status: int = 502
    after: bool = False
    message: str = "Server Error"
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: float = 0.0


SECONDARY = Fault(status=403, message="You have exceeded a secondary rate limit. Please wait a few minutes.")
SECONDARY_RETRY_AFTER = Fault(status=403, message="slow down", headers={"Retry-After": "1"})
TOO_MANY = Fault(status=429, message="You have exceeded a secondary rate limit.")
TOO_MANY_RETRY_AFTER = Fault(status=429, message="slow down", headers={"Retry-After": "1"})
BAD_GATEWAY = Fault()
BAD_GATEWAY_AFTER_WRITE = Fault(after=True)
DEAD_LINE = Fault(status=0)
DEAD_LINE_AFTER_WRITE = Fault(status=0, after=True)


@dataclass(kw_only=True)
class State:
    """All that is stored. `lock` is held while a request is served, as a database would."""

    comments: dict[int, Comment] = field(default_factory=dict)
    pulls: dict[int, Pull] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    artifacts: dict[int, Artifact] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)  # the base branch, newest first
    merge_bases: dict[tuple[str, str], str] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=lambda: {"good": Token(), "read-only": Token(write=False)})
    faults: list[tuple[str, str, Fault]] = field(default_factory=list)  # method, part of the path, what goes wrong
    trouble: Callable[[str, str], Fault | None] = lambda method, path: None
    write_limit: tuple[int, float] = (80, 60.0)  # content-making requests in so many seconds
    writes: deque[float] = field(default_factory=deque)
    most_writes_in_window: int = 0
    refused_writes: int = 0
    told_to_wait: dict[str, float] = field(default_factory=dict)  # by token: until when, as time.monotonic() has it
    hasty_writes: list[str] = field(default_factory=list)  # tokens of writes that came before that
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    before_write: Callable[[str, str], None] = lambda method, path: None
    lock: threading.RLock = field(default_factory=threading.RLock)
    next_id: int = 1000

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def comment(self, number: int, author: str, body: str) -> Comment:
        """Add a comment, as somebody who writes on the pull request would."""
        with self.lock:
            made = Comment(id=self.new_id(), number=number, author=author, body=body)
            self.comments[made.id] = made
            return made

    def upload(self, run: int, name: str, files: Mapping[str, bytes | str]) -> Artifact:
        """Add an artifact of a run, zipped as the upload action does."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in files.items():
                archive.writestr(member, content)
        return self.upload_raw(run, name, buffer.getvalue())

    def upload_raw(self, run: int, name: str, data: bytes) -> Artifact:
        """Add an artifact whose bytes are what they are."""
        with self.lock:
            made = Artifact(id=self.new_id(), run=run, name=name, data=data)
            self.artifacts[made.id] = made
            return made

    def of_bot(self, number: int) -> list[Comment]:
        """The bot's comments on a pull request, oldest first."""
        return [each for each in self.comments.values() if each.number == number and each.author == BOT]
