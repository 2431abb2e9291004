"""Calls of which no input required grad, as tests make that only run forwards: which inputs may be taken to require it.

That an input is differentiable is believed of those only that the target's own backward gives a gradient. None, or
nothing but zeros, is how a backward says that an argument is not differentiable (a mask, a threshold); asking for more
there would call right functions wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gradbot.model import Note

NO_GRADIENT = "no recorded call had inputs that require grad, and the backward gives none of them a gradient"
"""Why a call is skipped for which `require_grad` has nothing to note."""


def require_grad(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Note, ...]:
    """Mark the tensors of a call, leaves all, that the backward gives a gradient as requiring grad, and no others.

    Returns the note that says so; none where no tensor has a gradient. The call runs on copies. Where it raises, it is
    asked for each input alone; where it always raises, all inputs are marked, for that is what a user would meet.
    """
    tensors = _tensors(args, kwargs)
    found = _with_gradient(func, args, kwargs, tensors)
    if found is None:
        alone = [_with_gradient(func, args, kwargs, [each]) for each in tensors]
        raising = all(each is None for each in alone)
        found = tensors if raising else [each for some in alone for each in some or ()]
    wanted = {id(each) for each in found}
    for each in tensors:
        each.requires_grad_(id(each) in wanted)
    details = {"count": len(wanted), "of": len(tensors)}
    return (Note(code="grad_assumed", details=details),) if wanted else ()


def _tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
    found = {id(each): each for each in leaves if isinstance(each, Tensor)}
    return [each for each in found.values() if each.is_floating_point() or each.is_complex()]


def _with_gradient(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], asked: Sequence[Tensor]
) -> list[Tensor] | None:
    """Those of the `asked` tensors that the backward gives a gradient; None where it raises."""
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
        try:
            outputs = pytree.tree_leaves(func(*new_args, **new_kwargs))
            outputs = [each for each in outputs if isinstance(each, Tensor) and each.requires_grad]
            cotangents = [torch.randn_like(each) for each in outputs]
            inputs = [copies[id(each)] for each in asked]
            grads = torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True) if outputs else ()
        except Exception:  # noqa: BLE001  whatever user code raises
            return None
    return [each for each, grad in zip(asked, grads, strict=False) if grad is not None and _has_nonzero(grad)]


def _has_nonzero(grad: Tensor) -> bool:
    dense = grad if grad.layout is torch.strided else grad.to_dense()
    return bool((dense != 0).any())
