"""Where live functions and classes stand in the sources."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

import torch

from gradbot.model import Location

_SEARCHED_LINES = 60
_TORCH = str(Path(torch.__file__).parent)


def shown_path(path: str, root: Path) -> str:
    """A path as locations show it: POSIX, relative to the project where it lies in it."""
    resolved = Path(path).resolve()
    return (resolved.relative_to(root) if resolved.is_relative_to(root) else resolved).as_posix()


def written_function(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """The function that someone wrote, decorators peeled off, and wrappers that torch puts around it (`triton_op`)."""
    while function is not None:
        function = inspect.unwrap(function)
        function = getattr(function, "__func__", function)
        cells = getattr(function, "__closure__", None) or () if _is_torchs(function) else ()
        inner = [cell.cell_contents for cell in cells if isinstance(_contents(cell), FunctionType)]
        if not inner:
            break
        function = inner[0]
    return function


def _is_torchs(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(_TORCH)


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a cell that is empty so far
        return None


def place_of(function: Callable[..., Any] | None, root: Path) -> Location | None:
    """The def statement of a function, decorators peeled off; None for what is not written in Python."""
    unwrapped = written_function(function)
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
