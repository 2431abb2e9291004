"""The worker's loop: take a command, do it, put the process back, answer."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gradbot.worker.state import Restorer, State, exit_handlers, left_behind, take
from gradbot.worker.wire import Wire

Body = Mapping[str, Any]


class Turn(Protocol):
    """What a command may say while it is done."""

    def stage(self, stage: str, what: str = "") -> None:
        """What comes next: "import", "inputs", "forward", "backward" or a check's name, and of which thing."""

    def check(self, result: Body) -> None:
        """Hand over the result of a check, encoded: it is kept should the process die later."""


Handler = Callable[[Mapping[str, Any], Turn], Body]


def serve(wire: Wire, handle: Handler) -> None:
    """Do commands until told to end, or until the supervisor is gone.

    What the stage "import" changes in the environment and in the standard library stays, for the imported code may
    rely on it (code of other modules then gets another process); everything else is put back after each command.
    """
    restorer, exit_process, registered = Restorer(), os._exit, exit_handlers()
    state = take()
    for command in wire.commands():
        if command["do"] == "exit":
            if exit_handlers() > registered:
                return
            exit_process(0)
        turn = _Turn(wire, restorer, take(state), command)
        body = handle(command, turn)
        faulthandler.cancel_dump_traceback_later()
        state = turn.end(body)


class _Turn:
    """One command, from the state it begins in to its answer."""

    def __init__(self, wire: Wire, restorer: Restorer, state: State, command: Mapping[str, Any]) -> None:
        self._wire, self._restorer = wire, restorer
        self._state, self._handlers = state, exit_handlers()
        self._importing, self._modules = False, len(sys.modules)
        self._altered: list[str] = []
        self._timeout, self._import_timeout = command.get("timeout", 0.0), command.get("import_timeout", 0.0)
        _watch(self._timeout)

    def stage(self, stage: str, what: str = "") -> None:
        if self._importing and stage != "import":
            altered = self._restorer.restore(self._state, imported=True)
            if altered or len(sys.modules) != self._modules:
                self._altered += altered
                self._state = take()
        if self._importing is not (stage == "import"):
            _watch(self._timeout if self._importing else self._import_timeout)
        self._importing = stage == "import"
        self._wire.send("stage", stage=stage, what=what)

    def check(self, result: Body) -> None:
        self._wire.send("check", result=result)

    def end(self, body: Body) -> State:
        """Put the process back and answer; returns the state that it is in."""
        altered = self._restorer.restore(self._state, imported=self._importing)
        if self._importing:
            self._altered += altered
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # user code closed it: then there is nothing to flush
                stream.flush()
        self._wire.send(
            "reply",
            body=body,
            altered=self._altered,
            exit_handlers=exit_handlers() > self._handlers,
            retire=bool(body.get("retire")) or left_behind(self._state),
        )
        return self._state


def _watch(timeout: float) -> None:
    """Shortly before the deadline, print where each thread hangs: it is the last output that the supervisor keeps."""
    if timeout > 1:
        faulthandler.dump_traceback_later(timeout - 0.5, file=2)
