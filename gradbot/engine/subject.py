"""The user's function as a function of its checked tensors alone, in their own dtypes and layouts.

Arguments of any shape (nested containers, keyword arguments, modules with parameters) are held here once; a call puts
other tensors in the places of the checked ones and gives back the outputs in a row.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.trees import leaves, map_leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A function and the tensors its derivatives are taken by.

    `inputs` are leaves that require grad; `originals` are the user's tensors whose places they take (the same objects
    where possible). `modules` are modules whose parameters are among them. `selected` are the positions of the
    differentiable outputs among all leaves of the result. `clones`: the function works in place, every call gets
    copies. `fresh` are further tensors that calls change and that each call therefore gets copies of. `seed`: the
    function draws random numbers and is replayed under this seed. `projection` and `invariant` are those of
    `References`: they stand before and after the function and are differentiated with it.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[Tensor, ...]
    originals: tuple[Tensor, ...]
    input_names: tuple[str, ...]
    modules: tuple[torch.nn.Module, ...] = ()
    selected: tuple[int, ...] = ()
    output_names: tuple[str, ...] = ()
    clones: bool = False
    fresh: tuple[Tensor, ...] = ()
    seed: int | None = None
    projection: Callable[..., Any] | None = None
    invariant: Callable[..., Any] | None = None

    def call(self, tensors: Sequence[Tensor], func: Callable[..., Any] | None = None) -> tuple[Any, ...]:
        """All leaves of the result with `tensors` in the places of the checked ones; `func` stands in if given."""
        if self.projection is not None:
            tensors = _as_tuple(self.projection(*tensors))
        new = {id(old): self._own(each) for old, each in zip(self.originals, tensors, strict=True)}
        new.update({id(each): each.detach().clone() for each in self.fresh if id(each) not in new})
        args, kwargs = map_leaves(lambda leaf: new.get(id(leaf), leaf), (self.args, dict(self.kwargs)))
        with swapped(self.modules, new), self._replayed():
            result = (func or self.func)(*args, **kwargs)
        if self.invariant is not None:
            result = self.invariant(*_as_tuple(result))
        return tuple(leaf for _, leaf in leaves(result))

    def outputs(self, tensors: Sequence[Tensor], func: Callable[..., Any] | None = None) -> tuple[Tensor, ...]:
        """The differentiable outputs."""
        result = self.call(tensors, func)
        return tuple(result[position] for position in self.selected)

    def graph(self, tensors: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
        """The differentiable outputs with their graph, at the inputs or at `tensors`."""
        with torch.enable_grad():
            return self.outputs(self.inputs if tensors is None else tensors)

    def copies(self) -> tuple[Tensor, ...]:
        """Fresh leaves with the inputs' values and strides."""
        return tuple(each.detach().clone().requires_grad_() for each in self.inputs)

    def changed(self, **fields: Any) -> Subject:
        """The same with other fields."""
        return replace(self, **fields)

    def _own(self, tensor: Tensor) -> Tensor:
        return tensor.clone() if self.clones else tensor

    @contextlib.contextmanager
    def _replayed(self) -> Iterator[None]:
        if self.seed is None:
            yield
            return
        # the caller restores the state when all is done; here only the start matters
        seed_everything(self.seed)
        yield


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def seed_everything(seed: int) -> None:
    """Seeds the generators of torch, Python and, where it is loaded, NumPy."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % (1 << 32))


@contextlib.contextmanager
def swapped(modules: Sequence[torch.nn.Module], new: Mapping[int, Tensor]) -> Iterator[None]:
    """Parameters and buffers whose id is in `new` replaced while this is open; tied ones everywhere they stand."""
    places: list[tuple[dict[str, Any], str, Any]] = []
    table: dict[str, Any]
    for module in modules:
        for part in module.modules():
            for table in (part._parameters, part._buffers):
                places += [(table, name, each) for name, each in table.items() if each is not None and id(each) in new]
    try:
        for table, name, each in places:
            table[name] = new[id(each)]
        yield
    finally:
        for table, name, each in places:
            table[name] = each
