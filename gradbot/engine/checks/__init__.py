"""One property of a target a file. A check is a function from a `Context` to a `CheckResult`; `CHECKS` has them all."""

from __future__ import annotations

from gradbot.engine.checks import backward, determinism
from gradbot.engine.checks.context import Check
from gradbot.model import CheckName

CHECKS: tuple[tuple[CheckName, Check], ...] = (
    (backward.NAME, backward.run),
    (determinism.NAME, determinism.run),
)
"""Every check in the order in which they run: later ones may look at the results of earlier ones."""
