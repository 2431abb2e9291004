"""Tensors of samples: made leaves that require grad, moved to other dtypes and devices, named by their shapes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

_COMPLEX_OF = {torch.float64: torch.complex128, torch.float32: torch.complex64, torch.float16: torch.complex32}


def tensors_in(tree: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dicts, in order, each once."""
    found: dict[int, Tensor] = {}
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, Tensor):
            found.setdefault(id(leaf), leaf)
    return list(found.values())


def is_differentiable(tensor: Tensor) -> bool:
    """Whether it can require grad."""
    return tensor.is_floating_point() or tensor.is_complex()


def dtype_of(tree: Any) -> str:
    """The dtype of the tensors that require grad, else of the floating-point ones; float64 where there are none."""
    tensors = [each for each in tensors_in(tree) if is_differentiable(each)]
    checked = [each for each in tensors if each.requires_grad] or tensors
    return str(checked[0].dtype).removeprefix("torch.") if checked else "float64"


def prepared(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], *, dtype: torch.dtype | None, device: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as they are checked: leaves, in `dtype` (None: as they are), on `device`.

    If none of the tensors requires grad, all floating-point and complex ones do. A tensor that stands in several
    places stays one tensor. Modules among the arguments are copied when they have to be converted.
    """
    tensors = [each for each in tensors_in((args, kwargs)) if is_differentiable(each)]
    every = not any(each.requires_grad for each in tensors)
    made: dict[int, Any] = {}

    def convert(leaf: Any) -> Any:
        if id(leaf) not in made:
            made[id(leaf)] = _converted(leaf, dtype, device, every=every)
        return made[id(leaf)]

    new_args, new_kwargs = pytree.tree_map(convert, (tuple(args), dict(kwargs)))
    return new_args, new_kwargs


def _converted(leaf: Any, dtype: torch.dtype | None, device: str, *, every: bool) -> Any:
    if isinstance(leaf, torch.nn.Module):
        return converted_module(leaf, dtype, device)
    if not isinstance(leaf, Tensor):
        return leaf
    wanted = _dtype_for(leaf, dtype)
    grad = is_differentiable(leaf) and (every or leaf.requires_grad)
    if leaf.is_leaf and leaf.requires_grad == grad and leaf.dtype == wanted and _is_on(leaf, device):
        return leaf
    return leaf.detach().to(device=device, dtype=wanted).requires_grad_(grad)


def converted_module(module: torch.nn.Module, dtype: torch.dtype | None, device: str) -> torch.nn.Module:
    """A copy of a module in another dtype and on another device; the module itself where nothing changes."""
    tensors = [*module.parameters(), *module.buffers()]
    if all(each.dtype == _dtype_for(each, dtype) and _is_on(each, device) for each in tensors):
        return module
    return copy.deepcopy(module).to(device=device, dtype=dtype)


def _dtype_for(tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is None or not is_differentiable(tensor):
        return tensor.dtype
    return _COMPLEX_OF.get(dtype, tensor.dtype) if tensor.is_complex() and not dtype.is_complex else dtype


def _is_on(tensor: Tensor, device: str) -> bool:
    wanted = torch.device(device)
    return tensor.device.type == wanted.type and wanted.index in (None, tensor.device.index)


def shapes_text(values: Iterable[Any]) -> str:
    """Shapes of the first three tensors, for names: `64x128-128`; a tensor without dimensions is `scalar`."""
    shapes = ["x".join(map(str, each.shape)) or "scalar" for each in tensors_in(list(values))]
    return "-".join(shapes[:3])
