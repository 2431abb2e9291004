"""The one comment: found by marker and author, made once, never older than what it replaces.

GitHub has no compare-and-swap for comments. What holds it together instead is a loop that reads, takes the one next
step and reads again until nothing is left to do: that is list-then-create, the tidying up after two that created at
once, and the mending of a comment that an older run overwrote, all in one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gradbot.config import CommentMode
from gradbot.errors import UsageError
from gradbot.github.client import Comment, RequestError

COMMENT_LIMIT = 65_536
_SAME_STEP_AT_MOST = 3  # GitHub may store a body otherwise than sent; then it will never read back the same
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")
_MARKER = re.compile(
    r"<!-- gradbot:(?P<id>[A-Za-z0-9_-]{1,40}) sha=(?P<sha>[0-9a-f]{40,64}) run=(?P<run>[0-9]{1,18})"
    r" attempt=(?P<attempt>[0-9]{1,9}) parts=(?P<parts>[0-9]{1,9}) state=(?P<state>red|green) -->"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The first line of the comment: what it was made from.

    `run` is the newest of the workflow runs that reported, `attempt` the sum of their attempts, `parts` the number of
    reports. For one head all three only ever grow, so they order any two results.
    """

    id: str
    sha: str
    run: int
    attempt: int
    parts: int = 1
    red: bool = False

    def __str__(self) -> str:
        state = "red" if self.red else "green"
        return (
            f"<!-- gradbot:{self.id} sha={self.sha} run={self.run} attempt={self.attempt} parts={self.parts}"
            f" state={state} -->"
        )

    def newer_than(self, other: Marker) -> bool:
        """This result must not be replaced by `other`'s, for the same head."""
        return (self.run, self.attempt, self.parts) > (other.run, other.attempt, other.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The comment as it should be. `differs`: something fails, or differs from the base."""

    marker: Marker
    text: str
    differs: bool = True

    @property
    def body(self) -> str:
        """What is sent."""
        return f"{self.marker}\n{self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do: "create", "update" or "delete"; "none" with the reason why nothing is to be done."""

    do: str
    comment: int = 0
    body: str = ""
    why: str = ""


class Comments(Protocol):
    """What `publish` needs of a client."""

    def comments(self, number: int) -> tuple[Comment, ...]: ...
    def create_comment(self, number: int, body: str) -> None: ...
    def update_comment(self, comment: int, body: str) -> None: ...
    def delete_comment(self, comment: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the comment: its id where there is one, and what was done, in words."""

    comment: int = 0
    done: str = ""
    writes: int = 0


def check_id(comment_id: str) -> str:
    """A usable comment id; raises `UsageError`."""
    if not _ID.match(comment_id):
        raise UsageError(f"comment-id is {comment_id[:80]!r}; expected 1 to 40 letters, digits, '-' or '_'")
    return comment_id


def marker_of(body: str) -> Marker | None:
    """The marker in a comment's first line."""
    match = _MARKER.match(body.lstrip("\ufeff \r\n"))
    if match is None:
        return None
    numbers = {name: int(match[name]) for name in ("run", "attempt", "parts")}
    return Marker(id=match["id"], sha=match["sha"], red=match["state"] == "red", **numbers)


def _every_marker(_: Marker) -> bool:
    return True


def next_step(
    found: Sequence[Comment],
    viewer: str,
    wanted: Wanted,
    mode: CommentMode,
    believe: Callable[[Marker], bool] = _every_marker,
) -> Step:
    """The one next step towards exactly one comment, the oldest of ours, with the newest result.

    `believe` is asked about a marker that claims to be newer than the result at hand: a bot that repeats what people
    write could have been made to post one.
    """
    ours = [(each, marker) for each in found if each.author == viewer and (marker := marker_of(each.body))]
    ours = sorted((pair for pair in ours if pair[1].id == wanted.marker.id), key=lambda pair: pair[0].id)
    if mode is CommentMode.OFF:
        return Step(do="none", why="comments are off")
    if not ours:
        if mode is CommentMode.ALWAYS or wanted.marker.red or (mode is CommentMode.CHANGES and wanted.differs):
            return Step(do="create", body=wanted.body)
        return Step(do="none", why=f"nothing that the mode {mode.value!r} comments on")
    keeper = ours[0][0]
    body, newest = wanted.body, wanted.marker
    for comment, marker in ours:
        if marker.sha == newest.sha and marker.newer_than(newest) and believe(marker):
            body, newest = comment.body, marker
    if not _same(keeper.body, body):
        return Step(do="update", comment=keeper.id, body=body)
    if len(ours) > 1:
        return Step(do="delete", comment=ours[-1][0].id)
    why = "up to date" if newest == wanted.marker else "a newer run has already reported"
    return Step(do="none", comment=keeper.id, why=why)


def publish(
    client: Comments,
    number: int,
    viewer: str,
    wanted: Wanted,
    mode: CommentMode,
    *,
    still_wanted: Callable[[], bool],
    believe: Callable[[Marker], bool] = _every_marker,
    sleep: Callable[[float], None],
    settle: float,
    tries: int = 12,
) -> Outcome:
    """Bring the comment of pull request `number` up to date.

    `still_wanted` says, before every step, whether the pull request's head is still the one that was checked. Nothing
    stands between reading the comments and writing, and `settle` seconds after a write they are read again, until a
    reading finds nothing left to do: longer than a request takes, so that what a slower one overwrites is seen. Raises
    `RequestError` when GitHub refuses, or fails more than `tries` times.
    """
    if len(wanted.body) > COMMENT_LIMIT:
        raise UsageError(f"the comment has {len(wanted.body)} characters; GitHub takes {COMMENT_LIMIT}")
    steps: list[Step] = []
    last: RequestError | None = None
    for _ in range(tries):
        try:
            if not still_wanted():
                return Outcome(done="the pull request has moved on; its next run reports", writes=len(steps))
            step = next_step(client.comments(number), viewer, wanted, mode, believe)
            if step.do == "none" or steps.count(step) == _SAME_STEP_AT_MOST:
                done = ", ".join(f"{each.do}d" for each in steps)
                return Outcome(comment=step.comment, done=done or step.why, writes=len(steps))
            _carry_out(client, number, step)
            steps.append(step)
            last, wait = None, settle
        except RequestError as failure:
            if failure.wait is None:
                raise
            last, wait = failure, failure.wait
        sleep(wait)
    raise last or RequestError(f"the comment did not come to rest after {tries} readings")


def _carry_out(client: Comments, number: int, step: Step) -> None:
    if step.do == "create":
        client.create_comment(number, step.body)
        return
    try:
        if step.do == "update":
            client.update_comment(step.comment, step.body)
        else:
            client.delete_comment(step.comment)
    except RequestError as failure:
        if not failure.gone:  # deleted meanwhile: the next reading shows what is left
            raise


def _same(one: str, other: str) -> bool:
    """GitHub may change line ends and outer whitespace of what it stores."""
    return one.replace("\r\n", "\n").strip() == other.replace("\r\n", "\n").strip()
