"""The tensors that an object holds, wherever it holds them: modules, methods, closures, attributes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor


def tensors(value: Any) -> Iterator[Tensor]:
    """Tensors in arguments and in what they refer to: modules, closures, attributes."""
    return _tensors(value, set())


def _tensors(value: Any, seen: set[int]) -> Iterator[Tensor]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
        yield from _tensors([v for v in vars(value).values() if isinstance(v, Tensor)], seen)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, seen)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item, seen)
    elif isinstance(value, MethodType):
        yield from _tensors(value.__self__, seen)
        yield from _tensors(value.__func__, seen)
    elif isinstance(value, functools.partial):
        yield from _tensors((value.func, value.args, value.keywords), seen)
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # a cell that is empty so far
                yield from _tensors(cell.cell_contents, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for item in vars(value).values():
            yield from _tensors(item, seen)
