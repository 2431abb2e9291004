"""Backwards that run once a graph, or under `.backward()` alone: functions that trade memory for computing it again.

A reversible block frees its inputs and rebuilds them in the backward, a checkpoint refuses `torch.autograd.grad`. Such
a function is called anew for every gradient, on copies, and its graph is walked as in training. What stands around it
sees a function with an ordinary backward.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradbot.engine.names import with_names_of
from gradbot.engine.observe import is_inexact
from gradbot.engine.reach import tensors
from gradbot.engine.trees import leaves, map_leaves


def walked_once(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the values of `func` whose gradients are those that `.backward()` leaves in fresh leaves."""

    def called(*args: Any, **kwargs: Any) -> Any:
        found: list[Any] = [leaf for _, leaf in leaves((args, kwargs))]
        holders = [func, *(leaf for leaf in found if not isinstance(leaf, Tensor))]
        held = [each for each in tensors(holders) if each.is_leaf and each.requires_grad]
        given = tuple({id(leaf): leaf for leaf in (*found, *held) if is_inexact(leaf)}.values())
        call = _Call(func=func, args=args, kwargs=kwargs, tensors=given, held=frozenset(map(id, held)))
        return _Walked.apply(call, *given)  # type: ignore[no-untyped-call]

    return with_names_of(func, called)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call and its tensors; of those in `held` an argument that is no tensor has the same, which no copy would be."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    held: frozenset[int]

    def results(self, new: Mapping[int, Tensor]) -> tuple[Any, ...]:
        """All leaves of the result with the tensors `new` in the places of those with that id."""
        args, kwargs = map_leaves(lambda leaf: new.get(id(leaf), leaf), (self.args, dict(self.kwargs)))
        return tuple(leaf for _, leaf in leaves(self.func(*args, **kwargs)))


class _Walked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, *given: Tensor) -> Any:
        ctx.call = call
        ctx.save_for_backward(*given)
        with torch.enable_grad():
            results = call.results(_copies(call, given)[1])
        found = tuple(each.detach() if isinstance(each, Tensor) else each for each in results)
        fixed = [k for k, each in enumerate(results) if not (isinstance(each, Tensor) and each.requires_grad)]
        ctx.mark_non_differentiable(*(found[k] for k in fixed if isinstance(found[k], Tensor)))
        return found if len(found) != 1 else found[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        found = _elsewhere(lambda: _gradients(ctx.call, ctx.saved_tensors, grads))
        wanted = ctx.needs_input_grad[1:]
        return None, *(gradient if needed else None for gradient, needed in zip(found, wanted, strict=True))


def _copies(call: _Call, values: Sequence[Tensor]) -> tuple[list[Tensor], dict[int, Tensor]]:
    """The leaves that gradients are left in, and by the id of each tensor of the call what stands for it.

    That is a copy of the leaf, for a function may free what it is given, or set its .grad.
    """
    found, new = [], {}
    for old, value in zip(call.tensors, values, strict=True):
        if id(old) in call.held:
            found.append(old)
        else:
            found.append(value.detach().clone().requires_grad_(value.requires_grad))
            new[id(old)] = found[-1].clone()
    return found, new


def _gradients(call: _Call, values: Sequence[Tensor], grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    with torch.enable_grad():
        found, new = _copies(call, values)
        kept = [each.grad for each in found]
        for each in found:
            each.grad = None
        try:
            results = call.results(new)
            live = [
                (each, grad)
                for each, grad in zip(results, grads, strict=True)
                if grad is not None and isinstance(each, Tensor) and each.requires_grad
            ]
            torch.autograd.backward([each for each, _ in live], [grad for _, grad in live])
            return [each.grad for each in found]
        finally:
            for each, grad in zip(found, kept, strict=True):
                each.grad = grad


def _elsewhere(work: Callable[[], list[Tensor | None]]) -> list[Tensor | None]:
    """What `work` returns on a thread of its own: a backward inside another one counts as part of that."""
    found: list[list[Tensor | None]] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]
