"""One comment, whatever happens: over the real client and a real socket, against a fake that holds GitHub's rules."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fake_github.server import Fake, running
from fake_github.state import (
    BAD_GATEWAY,
    BAD_GATEWAY_AFTER_WRITE,
    BOT,
    DEAD_LINE,
    DEAD_LINE_AFTER_WRITE,
    REPOSITORY,
    SECONDARY,
    SECONDARY_RETRY_AFTER,
    TOO_MANY,
    TOO_MANY_RETRY_AFTER,
    Fault,
    Pull,
    State,
    Token,
    sha,
)

from gradbot.config import CommentMode
from gradbot.errors import UsageError
from gradbot.github.client import Client, RequestError, Timing
from gradbot.github.comment import COMMENT_LIMIT, Marker, Outcome, Wanted, check_id, marker_of, publish
from gradbot.github.context import Context

HEAD = sha("head")
FAST = Timing(request=2, tries=4, backoff=0.01, secondary=0.05, longest=2.0, between_writes=0.0, settle=0.0)


@pytest.fixture
def fake() -> Iterator[Fake]:
    state = State(pulls={7: Pull(number=7, head_sha=HEAD)})
    with running(state) as served:
        yield served


def client_of(fake: Fake, token: str = "good", timing: Timing = FAST) -> Client:
    return Client(
        Context(
            repository=REPOSITORY,
            event="pull_request",
            sha=HEAD,
            head_sha=HEAD,
            run_id=812,
            attempt=1,
            workflow_path=".github/workflows/gradients.yml",
            api_url=fake.api_url,
            graphql_url=fake.graphql_url,
            server_url=fake.server_url,
            token=token,
        ),
        timing,
    )


def wanted(
    text: str = "result", *, run: int = 812, attempt: int = 1, parts: int = 1, red: bool = True, head: str = HEAD
) -> Wanted:
    return Wanted(
        marker=Marker(id="default", sha=head, run=run, attempt=attempt, parts=parts, red=red), text=text, differs=red
    )


def post(fake: Fake, what: Wanted, mode: CommentMode = CommentMode.ALWAYS, token: str = "good") -> Outcome:
    client = client_of(fake, token)
    return publish(
        client,
        7,
        client.viewer(),
        what,
        mode,
        still_wanted=lambda: client.pull_request(7).head_sha == what.marker.sha,
        sleep=time.sleep,
        settle=FAST.settle,
    )


def bodies(fake: Fake) -> list[str]:
    return [each.body for each in fake.state.of_bot(7)]


def test_the_first_result_makes_a_comment(fake: Fake) -> None:
    outcome = post(fake, wanted("first"))
    assert bodies(fake) == [wanted("first").body]
    assert outcome.comment == fake.state.of_bot(7)[0].id


def test_the_next_result_replaces_it_in_place(fake: Fake) -> None:
    first = post(fake, wanted("first"))
    second = post(fake, wanted("second", run=813))
    assert bodies(fake) == [wanted("second", run=813).body]
    assert second.comment == first.comment


def test_an_identical_result_writes_nothing(fake: Fake) -> None:
    post(fake, wanted())
    assert post(fake, wanted()).writes == 0
    assert [each for each in fake.state.requests if each[0] == "PATCH"] == []


def test_the_comment_is_found_among_three_hundred(fake: Fake) -> None:
    for number in range(150):
        fake.state.comment(7, "someone", f"talk {number}")
    post(fake, wanted("first"))
    for number in range(150):
        fake.state.comment(7, "someone", f"more talk {number}")
    post(fake, wanted("second", run=813))
    assert bodies(fake) == [wanted("second", run=813).body]


def test_a_comment_on_the_third_page_is_found(fake: Fake) -> None:
    for number in range(250):
        fake.state.comment(7, "someone", f"talk {number}")
    fake.state.comment(7, BOT, wanted("first").body)
    post(fake, wanted("second", run=813))
    assert bodies(fake) == [wanted("second", run=813).body]


def test_a_marker_that_someone_else_planted_is_ignored(fake: Fake) -> None:
    planted = fake.state.comment(7, "mallory", wanted("all is well", run=10**9).body)
    post(fake, wanted("red"))
    assert bodies(fake) == [wanted("red").body]
    assert fake.state.comments[planted.id].body == wanted("all is well", run=10**9).body


def test_our_own_comment_is_known_by_whom_the_token_belongs_to(fake: Fake) -> None:
    fake.state.tokens["app"] = Token(login="kernel-app[bot]")
    fake.state.comment(7, BOT, wanted("of the default bot").body)
    post(fake, wanted("of the app"), token="app")
    post(fake, wanted("of the app, again", run=813), token="app")
    assert [each.body for each in fake.state.comments.values() if each.author == "kernel-app[bot]"] == [
        wanted("of the app, again", run=813).body
    ]
    assert bodies(fake) == [wanted("of the default bot").body]


def test_a_marker_counts_in_the_first_line_only(fake: Fake) -> None:
    fake.state.comment(7, BOT, "Somebody said:\n" + wanted().body)
    post(fake, wanted("red"))
    assert len(bodies(fake)) == 2


def test_each_comment_id_has_its_own_comment(fake: Fake) -> None:
    other = Wanted(marker=Marker(id="csrc", sha=HEAD, run=812, attempt=1, red=True), text="of csrc")
    post(fake, wanted("of default"))
    post(fake, other)
    assert sorted(bodies(fake)) == sorted([wanted("of default").body, other.body])


@pytest.mark.parametrize(
    ("stored", "late"),
    [
        ({"run": 900}, {"run": 812}),
        ({"run": 812, "attempt": 2}, {"run": 812, "attempt": 1}),
        ({"run": 812, "parts": 3}, {"run": 812, "parts": 2}),
    ],
)
def test_an_older_result_never_replaces_a_newer_one(fake: Fake, stored: dict[str, int], late: dict[str, int]) -> None:
    post(fake, wanted("newer", **stored))
    outcome = post(fake, wanted("older", **late))
    assert bodies(fake) == [wanted("newer", **stored).body]
    assert outcome.done == "a newer run has already reported"


def test_a_result_for_an_old_head_is_not_written(fake: Fake) -> None:
    fake.state.pulls[7].head_sha = sha("pushed")
    assert post(fake, wanted()).done == "the pull request has moved on; its next run reports"
    assert bodies(fake) == []


def test_a_new_head_replaces_an_old_head_even_from_a_lower_run_number(fake: Fake) -> None:
    post(fake, wanted("old head", run=900))
    fake.state.pulls[7].head_sha = sha("pushed")
    post(fake, wanted("new head", run=899, head=sha("pushed")))
    assert bodies(fake) == [wanted("new head", run=899, head=sha("pushed")).body]


@pytest.mark.parametrize(
    "fault",
    [SECONDARY, SECONDARY_RETRY_AFTER, TOO_MANY, TOO_MANY_RETRY_AFTER, BAD_GATEWAY, DEAD_LINE],
    ids=["403", "403-after", "429", "429-after", "502", "dead"],
)
@pytest.mark.parametrize("method", ["POST", "PATCH", "GET"])
def test_a_passing_fault_is_ridden_out(fake: Fake, fault: Fault, method: str) -> None:
    post(fake, wanted("first"), CommentMode.ALWAYS if method != "POST" else CommentMode.OFF)
    fake.state.faults.append((method, "/issues/", fault))
    post(fake, wanted("second", run=813))
    assert bodies(fake) == [wanted("second", run=813).body]
    assert fake.state.faults == []


@pytest.mark.parametrize("fault", [BAD_GATEWAY_AFTER_WRITE, DEAD_LINE_AFTER_WRITE], ids=["502", "dead"])
def test_a_post_that_failed_after_it_was_done_makes_no_second_comment(fake: Fake, fault: Fault) -> None:
    fake.state.faults.append(("POST", "/comments", fault))
    post(fake, wanted())
    assert bodies(fake) == [wanted().body]
    assert [each[0] for each in fake.state.requests].count("POST") == 2  # the viewer's query and one comment


def test_a_hung_connection_ends_and_is_tried_again(fake: Fake) -> None:
    client = client_of(fake, timing=Timing(request=1, tries=3, backoff=0.01, between_writes=0.0, settle=0.0))
    fake.state.faults.append(("POST", "/comments", Fault(status=0, after=True, hang=1.5)))
    publish(client, 7, BOT, wanted(), CommentMode.ALWAYS, still_wanted=lambda: True, sleep=time.sleep, settle=0.0)
    assert bodies(fake) == [wanted().body]


def test_the_query_for_the_author_is_tried_again(fake: Fake) -> None:
    fake.state.faults.append(("POST", "/graphql", BAD_GATEWAY))
    post(fake, wanted())
    assert bodies(fake) == [wanted().body]


def test_a_fault_that_stays_is_one_clear_failure(fake: Fake) -> None:
    fake.state.trouble = lambda method, path: BAD_GATEWAY if method == "POST" and "issues" in path else None
    with pytest.raises(RequestError, match=r"POST .*/comments: 502"):
        post(fake, wanted())
    assert bodies(fake) == []


def test_a_limit_that_asks_for_too_long_is_not_waited_for(fake: Fake) -> None:
    fake.state.faults.append(("POST", "/comments", Fault(status=429, message="wait", headers={"Retry-After": "3600"})))
    with pytest.raises(RequestError, match="429"):
        post(fake, wanted())


def test_a_read_only_token_is_recognised(fake: Fake) -> None:
    with pytest.raises(RequestError) as caught:
        post(fake, wanted(), token="read-only")
    assert caught.value.forbidden
    assert "read-only" not in str(caught.value)


def test_of_two_that_create_at_once_the_oldest_stays_with_the_newest_result(fake: Fake) -> None:
    def the_other(method: str, path: str) -> None:
        fake.state.before_write = lambda method, path: None
        fake.state.comment(7, BOT, wanted("of the other, older run", run=811).body)

    fake.state.before_write = the_other
    post(fake, wanted("of this run"))
    assert bodies(fake) == [wanted("of this run").body]


def test_the_newer_text_of_a_duplicate_is_kept(fake: Fake) -> None:
    fake.state.comment(7, BOT, wanted("older", run=811).body)
    fake.state.comment(7, BOT, wanted("newest", run=900).body)
    post(fake, wanted("middle"))
    assert bodies(fake) == [wanted("newest", run=900).body]


def test_a_comment_that_an_older_run_overwrote_is_mended(fake: Fake) -> None:
    post(fake, wanted("first", run=811))

    def an_older_one_writes_after_us(seconds: float) -> None:
        if fake.state.of_bot(7)[0].body == wanted().body and not clobbered:
            clobbered.append(True)
            fake.state.of_bot(7)[0].body = wanted("clobbered", run=810).body

    clobbered: list[bool] = []
    client = client_of(fake)
    publish(
        client,
        7,
        BOT,
        wanted(),
        CommentMode.ALWAYS,
        still_wanted=lambda: True,
        sleep=an_older_one_writes_after_us,
        settle=0.0,
    )
    assert clobbered
    assert bodies(fake) == [wanted().body]


def test_a_comment_deleted_meanwhile_is_made_anew(fake: Fake) -> None:
    post(fake, wanted("first"))

    def somebody_deletes_it(method: str, path: str) -> None:
        fake.state.before_write = lambda method, path: None
        fake.state.comments.clear()

    fake.state.before_write = somebody_deletes_it
    post(fake, wanted("second", run=813))
    assert bodies(fake) == [wanted("second", run=813).body]


@pytest.mark.parametrize(
    ("mode", "red", "differs", "comments"),
    [
        ("always", False, False, 1),
        ("changes", False, False, 0),
        ("changes", False, True, 1),
        ("changes", True, True, 1),
        ("failures", False, True, 0),
        ("failures", True, True, 1),
        ("off", True, True, 0),
    ],
)
def test_the_mode_decides_whether_a_comment_is_made(
    fake: Fake, mode: str, red: bool, differs: bool, comments: int
) -> None:
    what = Wanted(marker=Marker(id="default", sha=HEAD, run=812, attempt=1, red=red), text="x", differs=differs)
    post(fake, what, CommentMode(mode))
    assert len(bodies(fake)) == comments


@pytest.mark.parametrize("mode", ["always", "changes", "failures"])
def test_a_red_comment_is_turned_green_in_every_mode_but_off(fake: Fake, mode: str) -> None:
    post(fake, wanted("red"))
    post(fake, wanted("green", run=813, red=False), CommentMode(mode))
    assert bodies(fake) == [wanted("green", run=813, red=False).body]


def test_off_leaves_what_stands_there(fake: Fake) -> None:
    post(fake, wanted("red"))
    post(fake, wanted("green", run=813, red=False), CommentMode.OFF)
    assert bodies(fake) == [wanted("red").body]


def test_the_longest_comment_goes_through_and_a_longer_one_is_refused_before_it_is_sent(fake: Fake) -> None:
    room = COMMENT_LIMIT - len(wanted("").body)
    post(fake, wanted("x" * room))
    assert len(bodies(fake)[0]) == COMMENT_LIMIT
    with pytest.raises(UsageError, match="65537 characters"):
        post(fake, wanted("y" * (room + 1), run=813))
    assert fake.state.of_bot(7)[0].body.endswith("x")


def test_a_marker_reads_back_as_it_was_written() -> None:
    marker = Marker(id="a-b_C", sha=HEAD, run=5, attempt=2, parts=3, red=True)
    assert marker_of(f"{marker}\nbody") == marker
    assert marker_of(f"> {marker}") is None


@pytest.mark.parametrize("name", ["", "a b", "x-->", "ä", "a" * 41, "a.b"])
def test_a_comment_id_that_would_break_the_marker_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="comment-id"):
        check_id(name)
