"""What both batching checks share: whether vmap may refuse, and how a batch is compared with a loop.

torch has two vmaps. The older one (`is_grads_batched`) runs a backward or jvp on batched tensors; `torch.func.vmap`
over a whole derivative is the one that calls a custom `vmap` rule or a generated one. A refusal is a missing
capability, unless the Function declares a rule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.checks.context import Context
from gradbot.engine.checks.values import Values, disagrees
from gradbot.engine.user_errors import one_line
from gradbot.model import CheckName, Finding, Note, Severity

BATCH = 3
BESIDE = 2.0**-6  # how far apart the batch's points are, relative: a rule that mixes up samples must show

Attempt = tuple[Finding | None, str]
"""What is wrong, or why it could not be tried."""


def attempt(
    context: Context,
    check: CheckName,
    kind: str,
    form: str,
    batched: Callable[[], Values],
    looped: Callable[[], Values],
    *,
    methods: tuple[str, ...],
    declared: bool,
    outputs: int = 0,
) -> Attempt:
    """Compares a batch with a loop. `form` names the vmap; `declared`: the target promises that it can be batched.

    The first `outputs` of what is compared are the function's outputs, the others are gradients of its inputs.
    """
    try:
        expected = looped()
    except Exception as error:  # noqa: BLE001 - user code refuses even the loop: it has no such derivative here
        return None, one_line(error)
    try:
        with _without_fallback_warnings():
            found = batched()
    except Exception as error:  # noqa: BLE001
        if not declared:
            return None, one_line(error)
        details = {"form": form, "message": one_line(error)}
        return context.finding(check, kind, methods=methods, details=details), ""
    place = disagrees(_shaped(found, expected), expected, relative=context.rounding)
    if place is None:
        return None, ""
    count = len(context.subject.selected)
    output, input = (place % count, None) if place < outputs else (None, place - outputs)
    # torch's own ops disagree with themselves under vmap here and there: worth saying, and no fault of the target
    severity = None if _runs_custom_code(context) else Severity.WARNING
    finding = context.finding(
        check, kind, methods=methods, output=output, input=input, severity=severity, details={"form": form}
    )
    return finding, ""


def _runs_custom_code(context: Context) -> bool:
    """Whether a Function or op of somebody's own is the target or stands on its graph."""
    if context.function_class is not None or context.op is not None:
        return True
    seen: set[Any] = set()
    stack: list[Any] = [each.grad_fn for each in context.subject.graph()]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        seen.add(node)
        stack += [following for following, _ in node.next_functions]
    return False


def _shaped(found: Values, expected: Values) -> Values:
    """In the shapes that are expected: vmap over forward mode leaves a dimension of size one behind here and there."""
    return [
        one.reshape(other.shape) if one is not None and other is not None and one.numel() == other.numel() else one
        for one, other in zip(found, expected, strict=False)
    ]


@contextlib.contextmanager
def _without_fallback_warnings() -> Iterator[None]:
    """vmap warns that it loops where an op has no rule; that is of no interest here."""
    # there is no getter; torch's default is on
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch._C._functorch._set_vmap_fallback_warning_enabled(True)  # type: ignore[attr-defined]


def declares_rule(function_class: type | None) -> bool:
    """Whether a Function has a vmap rule of its own or asks for a generated one."""
    if function_class is None:
        return False
    own = getattr(function_class, "vmap", None) is not torch.autograd.Function.vmap
    return own or bool(getattr(function_class, "generate_vmap_rule", False))


def batch_of(tensors: Sequence[Tensor], generator: torch.Generator) -> tuple[Tensor, ...]:
    """`BATCH` samples of each tensor, stacked: the tensor itself and neighbours."""
    return tuple(torch.stack([each.detach(), *_neighbours(each.detach(), generator)]) for each in tensors)


def _neighbours(tensor: Tensor, generator: torch.Generator) -> list[Tensor]:
    return [
        tensor * (1 + BESIDE * torch.rand(tensor.shape, generator=generator, dtype=torch.float64).to(tensor))
        for _ in range(BATCH - 1)
    ]


def stacked(rows: Sequence[Values], like: Sequence[Tensor]) -> Values:
    """Rows of gradients as one batch; None counts as zeros."""
    return [
        torch.stack([torch.zeros_like(each) if row[k] is None else row[k] for row in rows])  # type: ignore[misc]
        for k, each in enumerate(like)
    ]


def refusals(attempts: Sequence[tuple[str, Attempt]]) -> tuple[Note, ...]:
    """A note for each form that could not be tried."""
    return tuple(
        Note(code="not_batched", details={"form": form, "message": message})
        for form, (_, message) in attempts
        if message
    )
