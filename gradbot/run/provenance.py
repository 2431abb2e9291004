"""Where and when a run happens: from git and from the environment of GitHub Actions."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradbot.model import Run, Shard

_REMOTE = re.compile(r"[:/]([A-Za-z0-9._-]+/[A-Za-z0-9._-]+?)(?:\.git)?/?$")


def describe(
    *, root: Path, environ: Mapping[str, str], command: Sequence[str], seed: int, version: str, started: float
) -> Run:
    """The `Run` of a run that starts at `started` (seconds since the epoch), without its duration.

    `head_sha` is the pull request's head as the event tells it; `checked_out_sha` is what git has, often the merge
    commit. Outside CI both are git's.
    """
    event = _event(environ)
    pull = _mapping(event.get("pull_request"))
    checked_out = _git(root, "rev-parse", "HEAD")
    in_ci = bool(environ.get("GITHUB_ACTIONS"))
    return Run(
        tool_version=version,
        started=datetime.datetime.fromtimestamp(started, datetime.timezone.utc).isoformat(timespec="milliseconds"),
        command=tuple(command),
        seed=seed,
        repository=environ.get("GITHUB_REPOSITORY") or _remote(root),
        head_sha=_text(_mapping(pull.get("head")).get("sha")) or (in_ci and environ.get("GITHUB_SHA")) or checked_out,
        checked_out_sha=checked_out,
        base_sha=_text(_mapping(pull.get("base")).get("sha")) or _before(event),
        branch=_branch(environ) or _git(root, "symbolic-ref", "--short", "-q", "HEAD"),
        ci_run=environ.get("GITHUB_RUN_ID", ""),
        attempt=_count(environ.get("GITHUB_RUN_ATTEMPT", "")),
    )


def shard_of(number: int, count: int) -> Shard:
    """The shard `number` of `count`."""
    return Shard(name=f"{number}/{count}", expected=tuple(f"{each}/{count}" for each in range(1, count + 1)))


def _event(environ: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(Path(environ.get("GITHUB_EVENT_PATH", "")).read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def _before(event: Mapping[str, Any]) -> str:
    sha = _text(event.get("before"))
    return "" if not sha.strip("0") else sha


def _branch(environ: Mapping[str, str]) -> str:
    return environ.get("GITHUB_HEAD_REF") or environ.get("GITHUB_REF_NAME", "")


def _remote(root: Path) -> str:
    found = _REMOTE.search(_git(root, "config", "--get", "remote.origin.url"))
    return found.group(1) if found else ""


def _git(root: Path, *arguments: str) -> str:
    """What git says, "" where there is no git or no repository."""
    command = ["git", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(text: str) -> int:
    return int(text) if text.isdigit() and int(text) > 0 else 1
