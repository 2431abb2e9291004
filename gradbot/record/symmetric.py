"""Recorded calls with symmetric matrices: functions of those alone are right where their inputs stay symmetric.

An eigendecomposition reads one triangle of its input and gives a gradient that is symmetric. A step of a single entry
leaves the set that it is made for, and calls it wrong; tests never do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.api import check_case
from gradbot.engine.names import named_arguments
from gradbot.engine.projections import symmetric
from gradbot.engine.references import References
from gradbot.engine.trees import leaves, map_leaves
from gradbot.model import Case, CaseResult, Note, Outcome

_ROUNDING = 64  # units of the last place by which a computed symmetric matrix may differ from its transpose
_BAD = (Outcome.FAILED, Outcome.ERRORED)


def check_recorded(
    case: Case, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], **options: Any
) -> CaseResult:
    """`check_case`; what it finds wrong at symmetric inputs is looked at again with steps that keep them symmetric.

    The second look counts where fewer checks fail in it; a note says so then. `options` are those of `check_case`.
    """
    references = options.get("references") or References()
    if references.projection is not None or not any(map(_is_symmetric, _checked(func, args, kwargs))):
        return check_case(case, func, args, kwargs, **options)
    result = check_case(case, func, args, kwargs, **_told_of_no_failure(options))
    if result.outcome is not Outcome.FAILED:
        return result
    flags = _symmetric_inputs(func, args, kwargs)
    if not any(flags):
        return result

    def projection(*tensors: Tensor) -> tuple[Tensor, ...]:
        kept = [*flags, *[False] * (len(tensors) - len(flags))]  # parameters of modules come last
        return tuple(symmetric(each) if flag else each for each, flag in zip(tensors, kept, strict=True))

    options["references"] = replace(references, projection=projection)
    again = check_case(case, func, args, kwargs, **options)
    if not _failing(again) < _failing(result):
        return result
    return replace(again, notes=(*again.notes, Note(code="symmetric_assumed", details={"count": sum(flags)})))


def _told_of_no_failure(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with an `on_check` that hears of no check that fails: it is not settled before the second look."""
    tell = options.get("on_check")
    if tell is None:
        return dict(options)
    return {**options, "on_check": lambda result: None if result.outcome in _BAD else tell(result)}


def _failing(result: CaseResult) -> set[str]:
    return {check.check for check in result.checks if check.outcome in _BAD}


def _symmetric_inputs(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[bool]:
    """For each checked argument, in the order that checks know, whether it and its gradient are symmetric matrices.

    A gradient that is not is no function's of symmetric matrices alone: it might be transposed.
    """
    checked = _checked(func, args, kwargs)
    flags = list(map(_is_symmetric, checked))
    copies = {id(each): each.detach().clone().requires_grad_() for each in checked}
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            put = map_leaves(lambda leaf: copies.get(id(leaf), leaf), (tuple(args), dict(kwargs)))
            results = [each for _, each in leaves(func(*put[0], **put[1]))]
            outputs = [each for each in results if isinstance(each, Tensor) and each.requires_grad]
            cotangents = [torch.randn_like(each) for each in outputs]
            grads = torch.autograd.grad(outputs, list(copies.values()), cotangents, allow_unused=True)
    except Exception:  # noqa: BLE001  whatever user code raises
        return [False] * len(flags)
    return [flag and grad is not None and _is_symmetric(grad) for flag, grad in zip(flags, grads, strict=True)]


def _checked(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The arguments whose gradients are checked, each once, in the order that checks know."""
    found: dict[int, Tensor] = {}
    for _, leaf in named_arguments(func, tuple(args), dict(kwargs)):
        if isinstance(leaf, Tensor) and leaf.requires_grad:
            found.setdefault(id(leaf), leaf)
    return list(found.values())


def _is_symmetric(tensor: Tensor) -> bool:
    tensor = tensor.detach()
    if tensor.layout is not torch.strided or tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
        return False
    if tensor.shape[-1] < 2 or tensor.numel() == 0:
        return False
    allowed = _ROUNDING * torch.finfo(tensor.dtype).eps * tensor.abs().max()
    return bool((tensor - tensor.mH).abs().max() <= allowed)
