"""Recorded calls with symmetric matrices: functions of those alone are right where their inputs stay symmetric.

An eigendecomposition reads one triangle of its input, and conjugate gradients solve no other system. A step of a single
entry leaves the set that such a function is made for, and calls it wrong; tests never do.
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
from gradbot.engine.second_looks import failing
from gradbot.model import Case, CaseResult, CheckName, Note, Outcome, Severity

_ROUNDING = 64  # units of the last place by which a computed symmetric matrix may differ from its transpose
_BAD = (Outcome.FAILED, Outcome.ERRORED)


def check_recorded(
    case: Case, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], **options: Any
) -> CaseResult:
    """`check_case`; what it finds wrong at symmetric inputs is looked at again with steps that keep them symmetric.

    The second look counts where fewer checks fail in it, or by fewer inputs; a note says so then. `options` are what
    `check_case` takes.
    """
    references = options.get("references") or References()
    flags = list(map(_is_symmetric, _checked(func, args, kwargs)))
    if references.projection is not None or not any(flags):
        return check_case(case, func, args, kwargs, **options)
    result = check_case(case, func, args, kwargs, **_told_of_no_failure(options))
    if result.outcome is not Outcome.FAILED:
        return result
    again = check_case(case, func, args, kwargs, **{**options, "references": _along(references, flags, symmetric)})
    fewer = failing(again.checks) < failing(result.checks) or _blamed(again) < _blamed(result)
    if not (fewer and failing(again.checks) <= failing(result.checks)):
        return result
    excused = _blamed(result) - _blamed(again)
    if any(flags[index] and _is_transposed(index, case, func, args, kwargs, options) for index in excused):
        return result
    return replace(again, notes=(*again.notes, Note(code="symmetric_assumed", details={"count": sum(flags)})))


def _along(references: References, flags: Sequence[bool], change: Callable[[Tensor], Tensor]) -> References:
    """References with a projection that changes the flagged inputs."""

    def projection(*tensors: Tensor) -> tuple[Tensor, ...]:
        kept = [*flags, *[False] * (len(tensors) - len(flags))]  # parameters of modules come last
        return tuple(change(each) if flag else each for each, flag in zip(tensors, kept, strict=True))

    return replace(references, projection=projection)


def _is_transposed(
    index: int,
    case: Case,
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> bool:
    """Whether the gradient by one input is right at any step once it is transposed: no step along symmetric ones shows
    that, and it is wrong."""
    only = replace(case, settings=replace(case.settings, checks=(CheckName.BACKWARD.value,)))
    flags = [position == index for position in range(index + 1)]
    references = _along(options.get("references") or References(), flags, _with_transposed_gradient)
    quiet = {name: value for name, value in options.items() if name not in ("on_check", "on_stage", "references")}
    return index not in _blamed(check_case(only, func, args, kwargs, **quiet, references=references))


def _with_transposed_gradient(matrix: Tensor) -> Tensor:
    value = matrix.detach()
    return value + (matrix - value).mT


def _told_of_no_failure(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with an `on_check` that hears of no check that fails: it is not settled before the second look."""
    tell = options.get("on_check")
    if tell is None:
        return dict(options)
    return {**options, "on_check": lambda result: None if result.outcome in _BAD else tell(result)}


def _blamed(result: CaseResult) -> set[int]:
    """The inputs by which the backward is wrong."""
    findings = [each for check in result.checks if check.check == CheckName.BACKWARD.value for each in check.findings]
    return {each.input for each in findings if each.severity is Severity.ERROR and each.input is not None}


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
