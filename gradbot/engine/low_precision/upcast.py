"""The same call in float64: every floating-point tensor, parameter and buffer that it is given, raised."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.low_precision.arithmetic import arithmetic
from gradbot.engine.observe import UserCodeError
from gradbot.engine.prepare import NothingToCheckError, Prepared, prepare
from gradbot.engine.references import References
from gradbot.engine.subject import Subject
from gradbot.engine.trees import map_leaves

LOW = (torch.float32, torch.float16, torch.bfloat16)


def is_low(tensor: Tensor) -> bool:
    """Whether a tensor is of a lower precision than float64, real or complex."""
    return tensor.dtype in (*LOW, torch.complex64, torch.complex32)


def prepared_in_double(subject: Subject, func: Callable[..., Any] | None = None, *, seed: int = 0) -> Prepared | None:
    """The call, or that of `func` with its arguments, prepared in float64; None where float64 is not accepted.

    Not accepted: it raises, or only its backward does and not in the dtype given, an output that was of low precision
    still is, or the values show that float64 is only what goes in and comes out.
    """
    raised: dict[int, Any] = {}
    args, kwargs = map_leaves(lambda leaf: _raised(leaf, raised), (subject.args, dict(subject.kwargs)))
    called = _raised(subject.func if func is None else func, raised)
    try:
        between = References(projection=subject.projection, invariant=subject.invariant)
        prepared = prepare(called, args, kwargs, seed=seed, references=between)
    except (UserCodeError, NothingToCheckError):
        return None
    outputs = [prepared.outputs[position] for position in prepared.subject.selected]
    if not outputs or any(isinstance(each, Tensor) and is_low(each) for each in outputs):
        return None
    if arithmetic(prepared.problem) is not torch.float64:
        return None
    if len(prepared.problem.inputs) != len(subject.inputs) or prepared.subject.selected != subject.selected:
        return None
    if func is None and _backward_raises(prepared.subject) and not _backward_raises(subject):
        return None
    return prepared


def _backward_raises(subject: Subject) -> bool:
    try:
        copies = subject.copies()
        outputs = subject.graph(copies)
        torch.autograd.grad(outputs, copies, [torch.ones_like(each) for each in outputs], allow_unused=True)
    except Exception:  # noqa: BLE001 - whatever user code raises
        return True
    return False


def _raised(leaf: Any, done: dict[int, Any]) -> Any:
    if isinstance(leaf, torch.nn.Module):
        return done.setdefault(id(leaf), copy.deepcopy(leaf).double())
    if isinstance(leaf, Tensor) and is_low(leaf) and not leaf.is_mkldnn:  # mkldnn knows float32 alone
        if id(leaf) not in done:
            wide = torch.complex128 if leaf.is_complex() else torch.float64
            done[id(leaf)] = leaf.detach().to(wide).requires_grad_(leaf.requires_grad)
        return done[id(leaf)]
    return leaf
