"""What goes wrong at the edges, as exceptions that carry an exit code. Each message says what was expected, what was
found, where, and the next step."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the command line returns."""

    RIGHT = 0
    WRONG = 1  # something is wrong with the targets: failed, crashed, timed out, errored
    USAGE = 2  # bad options, configuration or input files
    NOTHING_CHECKED = 3
    BROKEN = 4  # gradbot itself broke


class GradbotError(Exception):
    """Ends a command with one clear line and `exit_code`."""

    exit_code = ExitCode.BROKEN


class UsageError(GradbotError):
    """Bad options, configuration, names or files."""

    exit_code = ExitCode.USAGE


class NothingCheckedError(GradbotError):
    """There was nothing to check."""

    exit_code = ExitCode.NOTHING_CHECKED


class ExplainedError(Exception):
    """What went wrong in user code, said in one line that needs neither the exception's class nor its place."""
