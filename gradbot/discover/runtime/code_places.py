"""Where live functions and classes stand in the sources."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradbot.model import Location

_SEARCHED_LINES = 60


def shown_path(path: str, root: Path) -> str:
    """A path as locations show it: POSIX, relative to the project where it lies in it."""
    resolved = Path(path).resolve()
    return (resolved.relative_to(root) if resolved.is_relative_to(root) else resolved).as_posix()


def place_of(function: Callable[..., Any] | None, root: Path) -> Location | None:
    """The def statement of a function, decorators peeled off; None for what is not written in Python."""
    unwrapped = inspect.unwrap(function) if function is not None else None
    unwrapped = getattr(unwrapped, "__func__", unwrapped)
    code = getattr(unwrapped, "__code__", None)
    if code is None or code.co_filename.startswith("<"):
        return None
    line = _line_of_def(code.co_filename, code.co_firstlineno)
    last = max((each for _, _, each in code.co_lines() if each is not None), default=line)
    symbol = getattr(unwrapped, "__qualname__", "")
    return Location(path=shown_path(code.co_filename, root), line=line, end_line=max(line, last), symbol=symbol)


def _line_of_def(filename: str, first: int) -> int:
    """Code begins at its first decorator; the statement itself comes below."""
    for line in range(first, first + _SEARCHED_LINES):
        if linecache.getline(filename, line).lstrip().startswith(("def ", "async def ")):
            return line
    return first
