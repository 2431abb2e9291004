"""Keeping secrets from user code.

User code can read its own environment and, through /proc, that of the processes above it. So workers start without
secrets, and a supervisor that has some in its environment replaces itself by one that has none.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_SECRET = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|^SSH_AUTH_SOCK$|^NETRC$",
    re.IGNORECASE,
)
_RUNNER = re.compile(r"^(GITHUB_(ENV|PATH|OUTPUT|STATE|STEP_SUMMARY)|ACTIONS_.*|INPUT_.*)$", re.IGNORECASE)
_RESTARTED = "GRADBOT_RESTARTED"
_AGAIN = """
import sys
home = sys.argv.pop(1)
sys.path[:] = [*(each for each in sys.path if each), home]
from gradbot.cli.main import main
main()
"""
"""The command line again, with nothing of the working directory on the path: a `click.py` there is the user's code."""


def is_secret(name: str) -> bool:
    """Whether the environment variable `name` holds a secret, or a file through which a CI runner takes orders."""
    return bool(_SECRET.search(name) or _RUNNER.match(name)) and not name.startswith("TOKENIZERS_")


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what `is_secret` names."""
    return {name: value for name, value in environ.items() if not is_secret(name)}


def restart_without_secrets(arguments: Sequence[str]) -> None:
    """Replace this process by the same command without secrets in its environment; return where there are none.

    Overwriting `os.environ` would not do: /proc keeps showing the environment that a process was started with.
    """
    if os.name != "posix" or os.environ.get(_RESTARTED) or not any(map(is_secret, os.environ)):
        return
    clean = without_secrets(os.environ) | {_RESTARTED: "1"}
    sys.stdout.flush()
    sys.stderr.flush()
    home = str(Path(__file__).resolve().parents[2])
    os.execve(sys.executable, [sys.executable, "-c", _AGAIN, home, *arguments], clean)  # noqa: S606  our own command
