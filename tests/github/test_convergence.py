"""From any comments that may stand there, the steps lead to one comment of ours with the newest result, and rest."""

from __future__ import annotations

from fake_github.state import BOT, sha
from hypothesis import given, settings
from hypothesis import strategies as st

from gradbot.config import CommentMode
from gradbot.github.client import Comment
from gradbot.github.comment import Marker, Wanted, marker_of, next_step

HEADS = (sha("head"), sha("old"))
markers = st.builds(
    Marker,
    id=st.sampled_from(["gradbot", "other"]),
    sha=st.sampled_from(HEADS),
    run=st.integers(1, 4),
    attempt=st.integers(1, 2),
    parts=st.integers(0, 2),
    red=st.booleans(),
)
bodies = st.one_of(
    st.builds(lambda marker, text: f"{marker}\n{text}", markers, st.sampled_from(["a", "b"])), st.just("just talk")
)
comments = st.lists(st.tuples(st.sampled_from([BOT, "someone"]), bodies), max_size=6)
wanted = st.builds(
    Wanted,
    marker=markers.filter(lambda m: m.id == "gradbot" and m.sha == HEADS[0]),
    text=st.just("new"),
    differs=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(there=comments, what=wanted, mode=st.sampled_from(list(CommentMode)))
def test_the_steps_end_in_one_comment_with_the_newest_result(
    there: list[tuple[str, str]], what: Wanted, mode: CommentMode
) -> None:
    stored = {number: Comment(id=number, author=author, body=body) for number, (author, body) in enumerate(there, 1)}
    before = dict(stored)
    for _ in range(len(there) + 3):
        step = next_step(list(stored.values()), BOT, what, mode)
        if step.do == "none":
            break
        if step.do == "create":
            stored[100] = Comment(id=100, author=BOT, body=step.body)
        elif step.do == "update":
            stored[step.comment] = Comment(id=step.comment, author=BOT, body=step.body)
        else:
            del stored[step.comment]
    else:
        raise AssertionError("the steps do not end")
    ours = [each for each in stored.values() if _ours(each)]
    assert {k: v for k, v in before.items() if not _ours(v)} == {k: v for k, v in stored.items() if not _ours(v)}
    if mode is CommentMode.OFF:
        assert stored == before
    elif any(_ours(each) for each in before.values()) or mode is CommentMode.ALWAYS or what.marker.red:
        (only,) = ours
        rivals = [
            m for each in before.values() if _ours(each) and (m := marker_of(each.body)) and m.sha == what.marker.sha
        ]
        held = marker_of(only.body)
        assert held is not None
        assert held.sha == what.marker.sha
        assert not any(rival.newer_than(held) for rival in [*rivals, what.marker])


def _ours(comment: Comment) -> bool:
    marker = marker_of(comment.body)
    return comment.author == BOT and marker is not None and marker.id == "gradbot"
