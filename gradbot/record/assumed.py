"""Calls of which no input required grad, or made without grad mode, as tests make that only run forwards: which inputs
may be taken to require it.

That an input is differentiable is believed of those only that the target's own backward gives a gradient. None, or
nothing but zeros, is how a backward says that an argument is not differentiable (a mask, a threshold); asking for more
there would call right functions wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gradbot.model import Note

NO_GRADIENT = "no recorded call asked for a gradient, and the backward gives no input one"
RAISES = "no recorded call asked for a gradient, and where one is asked for it raises {message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """What to note of a call whose inputs were taken to require grad; or why it is skipped, where none could be."""

    notes: tuple[Note, ...] = ()
    skip: str = ""


def require_grad(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Assumption:
    """Mark the tensors of a call, leaves all, that the backward gives a gradient as requiring grad, and no others.

    The call runs on copies. Where it raises, it is asked for each input alone: a backward may refuse some of them.
    """
    tensors = _tensors(args, kwargs)
    found: list[Tensor] = []
    skip = NO_GRADIENT
    try:
        found = _with_gradient(func, args, kwargs, tensors)
    except Exception as error:  # noqa: BLE001  whatever user code raises
        skip = RAISES.format(message=f"{type(error).__name__}: {error}"[:200])
        for each in tensors:
            with contextlib.suppress(Exception):
                found += _with_gradient(func, args, kwargs, [each])
    wanted = {id(each) for each in found}
    for each in tensors:
        each.requires_grad_(id(each) in wanted)
    if not wanted:
        return Assumption(skip=skip)
    return Assumption(notes=(Note(code="grad_assumed", details={"count": len(wanted), "of": len(tensors)}),))


def _tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
    found = {id(each): each for each in leaves if isinstance(each, Tensor)}
    return [each for each in found.values() if each.is_floating_point() or each.is_complex()]


def _with_gradient(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], asked: Sequence[Tensor]
) -> list[Tensor]:
    """Those of the `asked` tensors that the backward gives a gradient. Raises what user code raises."""
    copies: dict[int, Tensor] = {}
    wanted = {id(each) for each in asked}

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) not in copies:
            copies[id(leaf)] = leaf.detach().clone().requires_grad_(id(leaf) in wanted)
        return copies[id(leaf)]

    new_args, new_kwargs = pytree.tree_map(copied, (tuple(args), dict(kwargs)))
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        torch.manual_seed(0)
        outputs = pytree.tree_leaves(func(*new_args, **new_kwargs))
        outputs = [each for each in outputs if isinstance(each, Tensor) and each.requires_grad]
        if not outputs:
            return []
        cotangents = [torch.randn_like(each) for each in outputs]
        grads = torch.autograd.grad(outputs, [copies[id(each)] for each in asked], cotangents, allow_unused=True)
    return [each for each, grad in zip(asked, grads, strict=True) if grad is not None and _has_nonzero(grad)]


def _has_nonzero(grad: Tensor) -> bool:
    dense = grad if grad.layout is torch.strided else grad.to_dense()
    return bool((dense != 0).any())
