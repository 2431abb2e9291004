"""What makes two calls the same for recording: cheap enough to compute for every call of a test suite."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_PLAIN = (str, bool, int, float, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


_RANGES = (slice, range)  # as plain, but slices cannot be hashed before Python 3.12

_PLAIN_TYPES = frozenset((*_PLAIN, torch.Size))


def quick_key(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Equal for calls of equal signature in one grad mode, and cheaper: no text is made of tensors and plain values."""
    if kwargs:
        named = ((name, _quick(value)) for name, value in kwargs.items())
        return (torch.is_grad_enabled(), *map(_quick, args), *named)
    return (torch.is_grad_enabled(), *map(_quick, args))


def _quick(value: Any) -> Any:
    kind = type(value)
    if kind is Tensor or kind is torch.nn.Parameter:
        layout = value.layout
        order = value.is_contiguous() if layout is torch.strided else layout
        return value.shape, value.dtype, value.requires_grad, order
    return (kind, value) if kind in _PLAIN_TYPES else _part(value)


def signature(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Shapes, dtypes, layouts and requires_grad of tensors; the values of plain arguments; the types of others."""
    parts = tuple(_part(value) for value in args)
    if kwargs:
        parts += tuple((name, _part(kwargs[name])) for name in sorted(kwargs))
    return parts


def _part(value: Any) -> Any:
    if isinstance(value, Tensor):
        dense = value.layout == torch.strided
        return (
            "tensor",
            tuple(value.shape),
            str(value.dtype),
            value.requires_grad,
            value.is_contiguous() if dense else str(value.layout),
        )
    if isinstance(value, (*_PLAIN, *_RANGES)):
        return (type(value).__name__, repr(value))
    if isinstance(value, tuple | list):
        return (type(value).__name__, *map(_part, value))
    if isinstance(value, dict):
        return ("dict", *((repr(key), _part(item)) for key, item in value.items()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return (type(value).__qualname__, *(_part(getattr(value, field.name)) for field in fields))
    name = getattr(value, "__qualname__", None)
    return ("object", type(value).__qualname__, name if isinstance(name, str) else "")


def plain_part(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """A signature without the sizes of its tensors: what tells apart kinds of calls from mere shapes."""

    def coarse(part: Any) -> Any:
        if isinstance(part, tuple) and part and part[0] == "tensor":
            return ("tensor", len(part[1]), part[2], part[3])
        return tuple(map(coarse, part)) if isinstance(part, tuple) else part

    return tuple(map(coarse, parts))


def wants_grad(parts: Any) -> bool:
    """Whether any tensor of a signature required grad."""
    if isinstance(parts, tuple) and parts and parts[0] == "tensor":
        return bool(parts[3])
    return isinstance(parts, tuple) and any(map(wants_grad, parts))


def called(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The signature of a call as it is made now: without grad mode, no input of it requires grad."""
    parts = signature(args, kwargs)
    return parts if torch.is_grad_enabled() else tuple(map(_without_grad, parts))


def _without_grad(part: Any) -> Any:
    if not isinstance(part, tuple):
        return part
    if part and part[0] == "tensor":
        return (*part[:3], False, *part[4:])
    return tuple(map(_without_grad, part))


def size(parts: Any) -> int:
    """How many tensor elements a signature has in all."""
    if isinstance(parts, tuple) and parts and parts[0] == "tensor":
        count = 1
        for each in parts[1]:
            count *= each
        return count
    return sum(map(size, parts)) if isinstance(parts, tuple) else 0
