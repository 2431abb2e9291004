"""What a supervisor and a worker say to each other: JSON objects, one a line, over two pipes of their own.

Commands go to the worker, events come back; stdout and stderr belong to user code. Every command carries a number `n`
that its events repeat, and every event the `token` that the worker was started with, so that bytes from elsewhere are
not taken for the worker's.

Commands (key `do`)
    collect   import the modules of a `Discovery`, list the targets and cases that this registers
    case      run one `Case`
    exit      end, running exit handlers where user code registered some

Events (key `event`)
    ready     the worker has its libraries; `environment` and `devices` describe where it runs
    stage     what comes next: "import", "inputs", "forward", "backward" or a check's name; `what` says of which thing
    check     a check of the case came to a `result`, an encoded `CheckResult`: sent before the next one begins, so that
              it is kept should the process die, hang or break the protocol later. A later one for the same check takes
              its place, and a reply takes the place of all
    reply     the command is done; `body` is its result. `altered`: names of the standard library that an import
              replaced; `exit_handlers`: exit handlers were registered; `retire`: this process is not to be used again
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Message = Mapping[str, Any]

EXIT_PIPE_LOST = 70
"""A worker's exit code when its event pipe was closed or replaced under it."""

MAX_LINE = 64 << 20
"""Bytes of the longest event that is read."""


class ProtocolError(Exception):
    """What came over the event pipe is not an event of this worker."""


def encode(message: Message) -> bytes:
    """A message as one line of ASCII."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


class EventReader:
    """Cuts the bytes of an event pipe into events.

    Raises `ProtocolError` for what is not a JSON object, carries another token or is longer than `MAX_LINE`.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """The events that `data` completes, one by one: those before what is refused are the worker's own."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._parts.append(line)
            whole = b"".join(self._parts)
            self._parts, self._size = [], 0
            yield self._event(whole)
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > MAX_LINE:
            raise ProtocolError(f"an event is longer than {MAX_LINE} bytes")

    def _event(self, line: bytes) -> Message:
        try:
            message = json.loads(line)
        except ValueError:
            raise ProtocolError(f"not an event: {line[:60]!r}") from None
        if not isinstance(message, dict) or message.get("token") != self._token:
            raise ProtocolError(f"not an event of this worker: {line[:60]!r}")
        return message
