"""What a job tells its runner: workflow commands on standard output, outputs and the summary in files."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from gradbot.report import annotations as workflow_commands
from gradbot.report import text
from gradbot.report.annotations import Annotation

SUMMARY_LIMIT = 1_000_000
"""GitHub takes 1 MiB a step, in bytes, with what the step wrote before."""


def say(level: str, words: str, emit: Callable[[str], None]) -> None:
    """A `notice`, `warning` or `error` that the run shows."""
    message = text.one_line(words, workflow_commands.MESSAGE_CHARACTERS)
    emit(workflow_commands.command(Annotation(level=level, title="gradbot", message=message)))


def quoted(words: str, emit: Callable[[str], None]) -> None:
    """Print text of any origin so that nothing in it is taken for a command."""
    token = secrets.token_hex(16)
    emit(f"::stop-commands::{token}")
    emit(words)
    emit(f"::{token}::")


def write_outputs(path: str, outputs: Mapping[str, str]) -> None:
    """Set the step's outputs. The delimiter is random, so that no value can end its own block."""
    with Path(path).open("a", encoding="utf-8", newline="\n") as file:
        for name, value in outputs.items():
            delimiter = f"gradbot_{secrets.token_hex(16)}"
            file.write(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")


def summary_room(path: str) -> int:
    """How many bytes the step's summary still takes."""
    file = Path(path)
    return max(0, SUMMARY_LIMIT - (file.stat().st_size if file.exists() else 0))


def append_summary(path: str, words: str) -> None:
    """Add to the step's summary."""
    with Path(path).open("a", encoding="utf-8", newline="\n") as file:
        file.write(words if words.endswith("\n") else f"{words}\n")
