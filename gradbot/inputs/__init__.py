"""From targets to their cases, and from a case to what is called. For worker processes; sources are loaded on use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gradbot.inputs.source import Collected, InputsError, LoadedCase, Request

if TYPE_CHECKING:
    from pathlib import Path

    from gradbot.model import Case

__all__ = ["SOURCES", "Collected", "InputsError", "LoadedCase", "Request", "collect", "import_case", "load_case"]

SOURCES = {
    "declared": "gradbot.inputs.declared_cases",
    "recorded": "gradbot.inputs.recorded",
    "opinfo": "gradbot.inputs.opinfo",
}
"""What stands before the first colon of a case's reference -> the module with its `collect` and `load`."""


def collect(request: Request, sources: tuple[str, ...] = ("declared", "recorded")) -> Collected:
    """The cases of a request from these sources, in that order; ids are unique."""
    found = Collected()
    for source in sources:
        found = found.joined(import_module(SOURCES[source]).collect(request))
    return found


def import_case(case: Case, root: Path) -> None:
    """Import the code that `load_case` needs, so that this counts as an import. Raises `ImportFailedError`."""
    module = import_module(SOURCES[case.reference.partition(":")[0]])
    if hasattr(module, "import_code"):
        module.import_code(case, root)


def load_case(case: Case, root: Path) -> LoadedCase:
    """What a case calls, with its inputs made anew. Raises `InputsError` with the reason in one line."""
    source = case.reference.partition(":")[0]
    if source not in SOURCES:
        raise InputsError(f"the case {case.id} has inputs of an unknown source: {case.reference!r}")
    loaded = import_module(SOURCES[source]).load(case, root)
    assert isinstance(loaded, LoadedCase)
    return loaded
