"""The worker's end of the two pipes, proof against what user code does to the process.

Everything that is needed to speak is taken hold of before user code is imported: replaced functions of `json` or `os`
do not matter. The descriptors are moved far up, so that they are neither hit by habits such as `os.close(3)` nor given
out again. Before each write it is made sure that this still is the same process and the same pipe: a child that user
code forked ends when it gets here, and a worker whose pipe was closed or replaced ends rather than write into a file
that is not its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
from collections.abc import Iterator, Mapping
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
from typing import Any

EXIT_PIPE_LOST = 70  # as in `run.protocol`
HIGH = 700
"""Where the descriptors go, or lower where fewer may be open."""


class Wire:
    """Reads commands, writes events."""

    def __init__(self, commands: int, events: int, token: str) -> None:
        self._commands, self._events = _move_up(commands), _move_up(events)
        self._token = token
        self._n = 0
        self._pid = os.getpid()
        self._pipe = _identity(os.fstat, self._events)
        self._getpid, self._read, self._write, self._exit = os.getpid, os.read, os.write, os._exit
        self._fstat = os.fstat
        self._parse = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
        self._format = _formatter()
        os.register_at_fork(after_in_child=self._close)

    def send(self, event: str, **fields: object) -> None:
        """Write one event. Fields are what `codec.encode` makes."""
        if self._getpid() != self._pid:
            self._exit(EXIT_PIPE_LOST)
        try:
            if _identity(self._fstat, self._events) != self._pipe:
                self._exit(EXIT_PIPE_LOST)
            message = {"token": self._token, "n": self._n, "event": event, **fields}
            data = "".join(self._format(message, 0)).encode("ascii") + b"\n"
            while data:
                data = data[self._write(self._events, data) :]
        except OSError:
            self._exit(EXIT_PIPE_LOST)

    def commands(self) -> Iterator[Mapping[str, Any]]:
        """Commands as they come, until the supervisor is gone."""
        kept = b""
        while True:
            while b"\n" not in kept:
                try:
                    data = self._read(self._commands, 1 << 20)
                except OSError:
                    self._exit(EXIT_PIPE_LOST)
                if self._getpid() != self._pid or not data:
                    return
                kept += data
            line, _, kept = kept.partition(b"\n")
            command, _ = self._parse(line.decode("ascii"), 0)
            self._n = command["n"]
            yield command

    def _close(self) -> None:
        for fd in (self._commands, self._events):
            with contextlib.suppress(OSError):
                os.close(fd)


def high_copy(fd: int) -> int:
    """A copy of a descriptor, far above those that are given out."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH if most < 0 else max(3, min(HIGH, most - 50)))


def _move_up(fd: int) -> int:
    moved = high_copy(fd)
    os.close(fd)
    return moved


def _identity(fstat: Any, fd: int) -> tuple[int, int]:
    status = fstat(fd)
    return status.st_dev, status.st_ino


def _formatter() -> Any:
    """`json.dumps` without the module: the compiled encoder itself, which nothing can be patched into."""
    if c_make_encoder is None:
        return lambda message, _: json.JSONEncoder().iterencode(message)
    return c_make_encoder({}, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)


def _refuse(value: object) -> object:
    raise TypeError(f"an event cannot hold {type(value).__name__}")
