"""Arguments that cannot be moved, since something beside them holds what was once computed from them.

An implicit layer is given a function and the parameters that it closes over; where the function holds `scale.exp()` and
`scale` is passed, a step in `scale` never reaches the function, nor does the graph of a copy lead back to it. Such
arguments stay as they are, graph and all, and the derivatives by the others are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from gradbot.engine.names import named_arguments, with_names_of
from gradbot.engine.reach import tensors
from gradbot.engine.trees import map_leaves


class Fixed:
    """A tensor that no check takes for an input. No dataclass, for those are looked into."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """The names of arguments that cannot be moved, by id, and all tensors that must stay as they are with them."""

    names: Mapping[int, str]
    keep: tuple[Tensor, ...]


def held_back(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> HeldBack:
    """The arguments that something else within reach was computed from."""
    passed = {
        id(leaf): (name, leaf)
        for name, leaf in named_arguments(func, args, kwargs)
        if isinstance(leaf, Tensor) and leaf.requires_grad
    }
    others = [each for each in tensors((args, kwargs)) if id(each) not in passed]
    edges = _edges(others)
    names = {key: name for key, (name, leaf) in passed.items() if tuple(get_gradient_edge(leaf))[:2] in edges}
    return HeldBack(names=names, keep=(*others, *(passed[key][1] for key in names)))


def without(
    held: HeldBack, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The same call in which what is held back is no tensor to whoever looks at the arguments."""

    def hidden(leaf: Any) -> Any:
        return Fixed(leaf) if id(leaf) in held.names else leaf

    def shown(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = map_leaves(lambda leaf: leaf.tensor if isinstance(leaf, Fixed) else leaf, (args, kwargs))
        return func(*args, **kwargs)

    args, kwargs = map_leaves(hidden, (args, kwargs))
    return with_names_of(func, shown), args, kwargs


def _edges(tensors: list[Tensor]) -> set[tuple[Any, int]]:
    """What the graphs of tensors lead through: each node, with the number of the output that they use."""
    stack = [(each.grad_fn, each.output_nr) for each in tensors if each.grad_fn is not None]
    seen: set[tuple[Any, int]] = set()
    while stack:
        edge = stack.pop()
        if edge in seen:
            continue
        seen.add(edge)
        stack += [(node, number) for node, number in edge[0].next_functions if node is not None]
    return seen
