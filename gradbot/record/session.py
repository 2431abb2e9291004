"""Recording in this process as the environment asks for it: what `gradbot record` and the pytest plugin start."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = "GRADBOT_RECORD"
"""Holds a `Wish` as JSON in every process of a recorded run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Where to write what is seen, of which packages and op namespaces, and whether to check calls on the spot."""

    spool: str
    packages: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    check: bool = False

    def dumps(self) -> str:
        """As text for an environment variable."""
        fields = {"spool": self.spool, "packages": self.packages, "namespaces": self.namespaces, "check": self.check}
        return json.dumps(fields)


def wish_from(environ: Mapping[str, str]) -> Wish | None:
    """The wish of an environment; None where there is none."""
    if not environ.get(ENVIRONMENT):
        return None
    raw = json.loads(environ[ENVIRONMENT])
    return Wish(
        spool=raw["spool"],
        packages=tuple(raw["packages"]),
        namespaces=tuple(raw["namespaces"]),
        check=bool(raw["check"]),
    )


def current_test() -> str:
    """The pytest node id that is running, without its phase; empty outside pytest."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]


@contextlib.contextmanager
def recording(wish: Wish, test_id: Callable[[], str] = current_test) -> Iterator[None]:
    """Record calls until the end of the block."""
    from gradbot.record.spool import Scope, Spool
    from gradbot.record.watch import watching

    in_place = None
    if wish.check:
        from gradbot.record.in_place import checker

        in_place = checker(Path(wish.spool))
    scope = Scope(packages=wish.packages, namespaces=wish.namespaces)
    spool = Spool(folder=Path(wish.spool), scope=scope, test_id=test_id, in_place=in_place)
    with watching(spool):
        yield


def start(wish: Wish) -> None:
    """Record calls until the process ends."""
    session = recording(wish)
    session.__enter__()
    # also keeps the session alive: a context manager that nobody holds would end at once
    atexit.register(session.__exit__, None, None, None)
