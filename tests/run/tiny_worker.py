"""A worker without torch that does what its command's code says: real protocol, real process, real faults."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Mapping
from typing import Any

from gradbot.worker.limits import die_with_parent, limit_memory, no_core_files
from gradbot.worker.serve import Turn, serve
from gradbot.worker.wire import Wire


def preload() -> None:
    """There is nothing to load."""


def main(commands: str, events: str, token: str, memory_limit: str = "0") -> None:
    """Serve commands `{"do": "case", "imports": code, "code": code}`."""
    die_with_parent()
    no_core_files()
    faulthandler.enable()
    wire = Wire(int(commands), int(events), token)
    wire.send("ready", environment={}, devices={"cpu": 1})
    limit_memory(int(memory_limit))
    serve(wire, handle)


def handle(command: Mapping[str, Any], turn: Turn) -> Mapping[str, Any]:
    """Run the code; its variable `value` is the answer."""
    scope: dict[str, Any] = {"stage": turn.stage, "check": turn.check}
    try:
        turn.stage("import", "module")
        exec(command.get("imports", ""), scope)
        turn.stage("forward")
        exec(command["code"], scope)
        return {"value": scope.get("value", "done")}
    except BaseException as error:
        return {"error": type(error).__name__, "retire": isinstance(error, MemoryError)}


if __name__ == "__main__":
    sys.exit("started by a supervisor only")
