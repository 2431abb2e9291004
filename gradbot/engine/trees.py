"""Nested arguments and results: tuples, named tuples, lists, dicts and dataclasses of tensors and anything else.

torch's own pytree knows only dataclasses that were registered with it and loses the names; this walks what users
really pass. A leaf is whatever is none of the containers above.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any


def leaves(tree: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Every leaf with its name: `x`, `x[0]`, `x['key']`, `x.field`. The order is that of the containers."""
    if isinstance(tree, (tuple, list)):
        fields = getattr(tree, "_fields", None)
        for index, each in enumerate(tree):
            yield from leaves(each, f"{name}.{fields[index]}" if fields else f"{name}[{index}]")
    elif isinstance(tree, dict):
        for key, each in tree.items():
            yield from leaves(each, f"{name}[{key!r}]")
    elif _is_dataclass_value(tree):
        for each in dataclasses.fields(tree):  # type: ignore[arg-type]
            yield from leaves(getattr(tree, each.name, None), f"{name}.{each.name}")
    else:
        yield name, tree


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same containers around `function(leaf)`; containers whose leaves all stay the same are kept as they are.

    But for plain lists and dicts, which are always new: functions pop from the options that they are given.
    """
    if isinstance(tree, (tuple, list)):
        mapped = [map_leaves(function, each) for each in tree]
        if type(tree) is not list and all(new is old for new, old in zip(mapped, tree, strict=True)):
            return tree
        return type(tree)(*mapped) if hasattr(tree, "_fields") else type(tree)(mapped)
    if isinstance(tree, dict):
        changed = {key: map_leaves(function, each) for key, each in tree.items()}
        if type(tree) is not dict and all(changed[key] is each for key, each in tree.items()):
            return tree
        return _like_dict(tree, changed)
    if _is_dataclass_value(tree):
        values = {each.name: getattr(tree, each.name, None) for each in dataclasses.fields(tree)}
        changed = {key: map_leaves(function, each) for key, each in values.items()}
        if all(changed[key] is each for key, each in values.items()):
            return tree
        return _like_dataclass(tree, changed)
    return function(tree)


def _is_dataclass_value(tree: object) -> bool:
    return dataclasses.is_dataclass(tree) and not isinstance(tree, type)


def _like_dict(tree: dict[Any, Any], values: dict[Any, Any]) -> dict[Any, Any]:
    # a defaultdict or OrderedDict keeps its type and its default
    copied = tree.copy()
    copied.update(values)
    return copied


def _like_dataclass(tree: Any, values: dict[str, Any]) -> Any:
    # not dataclasses.replace: fields may be init=False, and __post_init__ must not run twice
    copied = object.__new__(type(tree))
    if hasattr(tree, "__dict__"):
        copied.__dict__.update(tree.__dict__)
    for key, value in values.items():
        object.__setattr__(copied, key, value)
    return copied
