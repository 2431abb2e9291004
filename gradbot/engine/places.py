"""Where user code stands: the source of a Function's method, or of a plain function or module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from gradbot.model import Location


def method_location(function_class: type | None, *names: str) -> Location | None:
    """The first of the methods that a Function's class has in Python; else the class."""
    if function_class is None:
        return None
    for name in names:
        method = getattr(function_class, name, None)
        found = _location(method, f"{function_class.__qualname__}.{name}")
        if found is not None:
            return found
    return _location(function_class, function_class.__qualname__)


def function_location(func: Callable[..., Any]) -> Location | None:
    """Where a callable stands; of a module its `forward`."""
    found = func.forward if isinstance(func, torch.nn.Module) else getattr(func, "func", func)
    return _location(found, getattr(found, "__qualname__", type(func).__qualname__))


def _location(thing: Any, symbol: str) -> Location | None:
    thing = inspect.unwrap(thing) if callable(thing) else thing
    try:
        path = inspect.getsourcefile(thing)
        lines, first = inspect.getsourcelines(thing)
    except (TypeError, OSError, IndexError):
        return None
    if path is None or _is_torch(path):
        return None
    return Location(path=path, line=max(first, 1), end_line=max(first, 1) + len(lines) - 1, symbol=symbol)


def _is_torch(path: str) -> bool:
    return path.startswith(torch.__path__[0])
