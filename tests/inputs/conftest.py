"""Modules that a test imports are gone after it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def imports() -> Iterator[None]:
    """Puts `sys.path` and `sys.modules` back."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith(("torch", "numpy", "gradbot")):
            del sys.modules[name]
