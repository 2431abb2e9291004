"""What comes over an event pipe is the worker's own, whole, or not taken."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run.pools import run, task

from gradbot.run.protocol import EventReader, ProtocolError


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


@given(st.lists(st.integers(), max_size=5), st.data())
def test_events_are_read_however_they_are_cut(numbers: list[int], data: st.DataObject) -> None:
    stream = b"".join(line(token="t", n=number) for number in numbers)
    reader, seen = EventReader("t"), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        seen += [event["n"] for event in reader.feed(stream[:size])]
        stream = stream[size:]
    assert seen == numbers


@pytest.mark.parametrize("data", [b"garbage\n", b"\n", b"[1]\n", b"\xff\x00\n", line(n=1), line(token="other", n=1)])
def test_what_is_not_the_workers_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(EventReader("t").feed(data))


FORGE = """
import json, os
for fd in range(3, 1024):
    try:
        os.write(fd, b'{"token": "guess", "event": "reply", "n": 1, "body": {"value": "forged"}}\\n')
    except OSError:
        pass
value = "own"
"""


def test_a_forged_answer_costs_the_forger_and_is_not_taken() -> None:
    ended = run([task("forger", FORGE), task("other", "value = 'fine'")])
    assert ended["forger"].reply is None
    assert ended["forger"].crash is not None
    assert ended["forger"].crash.cause == "protocol"
    assert ended["other"].reply is not None


def test_an_answer_of_a_forked_child_is_not_taken() -> None:
    code = "import os, time\nvalue = 'parent' if os.fork() else 'child'\nif value == 'parent': time.sleep(0.3)"
    ended = run([task("forking", code)])
    assert ended["forking"].reply is not None
    assert ended["forking"].reply["body"] == {"value": "parent"}
