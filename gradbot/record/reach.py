"""What the arguments of a call reach: their tensors, and those that modules, closures and objects among them hold.

Everything here changes objects of the caller in place: it is for a copy of the process that ends with the check.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.reach import tensors

_WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}


def upcast(
    args: tuple[Any, ...], kwargs: dict[str, Any], *, widen: bool = True, keep: Collection[Tensor] = ()
) -> dict[int, Tensor]:
    """Turn every low-precision tensor within reach to float64 in its own object; returns leaves for the arguments.

    With `widen` off, dtypes stay, and only the leaves are made; the tensors of `keep` stay as they are. A tensor with a
    graph cannot be perturbed by itself, so it gets a leaf of the same memory; one made in inference mode, or one that
    shares its memory with a tensor of `keep`, gets a copy. Callables and objects among the arguments that hold such a
    tensor as well hold its leaf from then on: a backward may differentiate by what they hold.
    """
    leaves: dict[int, Tensor] = {}
    wide = _WIDE if widen else {}
    kept, memories = {id(each) for each in keep}, {_memory(each) for each in keep}
    for tensor in tensors((args, kwargs)):
        if id(tensor) in kept:
            continue
        own = tensor.is_inference() or (bool(keep) and _memory(tensor) in memories)
        if tensor.grad_fn is not None or own:
            data = tensor.detach().clone() if own else tensor.detach()
            leaves[id(tensor)] = data.to(wide.get(tensor.dtype, tensor.dtype)).requires_grad_(tensor.requires_grad)
        elif tensor.dtype in wide and type(tensor) in (Tensor, torch.nn.Parameter):
            _widen(tensor, wide[tensor.dtype])
    if leaves:
        _hand_over((args, kwargs), leaves, set())
    return leaves


def _memory(tensor: Tensor) -> int | None:
    """What views of the same memory have in common; None for layouts that have no memory of their own."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided and tensor.numel() else None


def _widen(tensor: Tensor, dtype: torch.dtype) -> None:
    """Change the dtype of a leaf in its own object. Its gradient so far belongs to the run, not to this copy."""
    tensor.grad = None
    tensor.data = tensor.data.to(dtype)
    if hasattr(tensor, "grad_dtype") and tensor.requires_grad:
        tensor.grad_dtype = dtype


def _hand_over(value: Any, leaves: dict[int, Tensor], seen: set[int]) -> None:
    """Put leaves in the places of their tensors in all that arguments refer to: this process ends with the check."""
    if id(value) in seen or isinstance(value, Tensor | type | ModuleType):
        return
    seen.add(id(value))

    def instead(item: Any) -> Any:
        # tuples are made anew, what can be changed stays the object that others hold
        return with_leaves(item, leaves) if isinstance(item, Tensor) or type(item) is tuple else item

    parts: list[Any] = []
    if isinstance(value, MethodType):
        parts = [value.__self__, value.__func__]
    elif isinstance(value, functools.partial):
        value.__setstate__((value.func, instead(value.args), value.keywords, vars(value)))  # type: ignore[attr-defined]
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # a cell that is empty so far
                cell.cell_contents = instead(cell.cell_contents)
                parts.append(cell.cell_contents)
    elif isinstance(value, dict):
        for key, item in value.items():
            value[key] = instead(item)
        parts = list(value.values())
    elif isinstance(value, list):
        value[:] = map(instead, value)
        parts = list(value)
    elif isinstance(value, tuple):
        parts = list(value)
    elif hasattr(value, "__dict__"):
        parts = [vars(value)]
    for part in parts:
        _hand_over(part, leaves, seen)


def with_leaves(value: Any, leaves: dict[int, Tensor]) -> Any:
    """Nested arguments with the leaves in the places of their tensors, by id."""
    if isinstance(value, Tensor):
        return leaves.get(id(value), value)
    if type(value) in (tuple, list):
        return type(value)(with_leaves(item, leaves) for item in value)
    if type(value) is dict:
        return {key: with_leaves(item, leaves) for key, item in value.items()}
    return value
