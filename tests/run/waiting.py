"""Waiting for what other processes do, for as long as it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST = 300.0
"""Seconds after which nothing is expected any more: no measure of speed, only an end to a wait that has none."""


def wait_until(holds: Callable[[], object], otherwise: Callable[[], object]) -> None:
    """Return as soon as `holds()` is true; where it never is, fail with what `otherwise()` says."""
    end = time.monotonic() + LONGEST
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(str(otherwise()))
        time.sleep(0.05)
