"""grad_metadata: each gradient has the shape, kind of dtype, layout and device of its input, and there are as many.

autograd mends much of what a backward returns (it casts, expands and sums), so that what the backward itself returned
is looked at on its way, at every Python node of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.checks.context import Context, concluded, cotangents, raised
from gradbot.model import CheckName, CheckResult, Finding

NAME = CheckName.GRAD_METADATA


def run(context: Context) -> CheckResult:
    """Looks at the gradients that arrive at the inputs, and at those that custom Functions return."""
    returned: list[tuple[str, Tensor, Any]] = []
    inputs = context.subject.inputs
    try:
        outputs = context.subject.graph()
        directions = cotangents(outputs, context.generator(5))
        handles = [node.register_hook(_watch(node, returned)) for node in _python_nodes(outputs)]
        try:
            gradients = torch.autograd.grad(outputs, inputs, directions, allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "backward")
    findings = [
        finding
        for position, (gradient, like) in enumerate(zip(gradients, inputs, strict=True))
        if gradient is not None and (finding := _arrived(context, position, gradient, like)) is not None
    ]
    findings += [
        context.finding(
            NAME,
            "grad_dtype",
            details={"expected": str(expected.dtype), "found": str(gradient.dtype), "function": name},
        )
        for name, gradient, expected in returned
        if gradient.is_complex() and not expected.dtype.is_complex
    ]
    return concluded(NAME, tuple(findings))


def _arrived(context: Context, position: int, gradient: Tensor, like: Tensor) -> Finding | None:
    """What is wrong with a gradient as autograd hands it over; a strided one for a sparse input is fine."""
    sparse = gradient.layout is not torch.strided and not gradient.is_mkldnn
    if gradient.shape != like.shape:
        kind, expected, found = "wrong_grad_size", str(tuple(like.shape)), str(tuple(gradient.shape))
    elif gradient.device != like.device:
        kind, expected, found = "wrong_grad_device", str(like.device), str(gradient.device)
    elif gradient.dtype != like.dtype:
        kind, expected, found = "grad_dtype", str(like.dtype), str(gradient.dtype)
    elif sparse and like.layout not in (torch.strided, gradient.layout):
        kind, expected, found = "wrong_grad_layout", str(like.layout), str(gradient.layout)
    elif sparse and gradient.layout == like.layout and _dims(gradient) != _dims(like):
        kind, expected, found = "wrong_grad_sparse_dims", str(_dims(like)), str(_dims(gradient))
    else:
        return None
    return context.finding(NAME, kind, input=position, details={"expected": expected, "found": found})


def _dims(tensor: Tensor) -> tuple[int, int]:
    return tensor.sparse_dim(), tensor.dense_dim()


def _python_nodes(outputs: tuple[Tensor, ...]) -> Iterator[Any]:
    """Nodes of custom Functions, each once."""
    seen: set[Any] = set()
    stack: list[Any] = [each.grad_fn for each in outputs]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            yield node
        stack += [following for following, _ in node.next_functions]


def _watch(node: Any, returned: list[tuple[str, Tensor, Any]]) -> Any:
    def hook(grad_inputs: tuple[Tensor | None, ...], _grad_outputs: tuple[Tensor | None, ...]) -> None:
        for gradient, (following, number) in zip(grad_inputs, node.next_functions, strict=False):
            if gradient is None or following is None:
                continue
            expected = getattr(following, "variable", None)
            if expected is None:
                metadata = getattr(following, "_input_metadata", None)
                expected = metadata[number] if metadata is not None and number < len(metadata) else None
            if expected is not None:
                returned.append((node.name(), gradient.detach(), expected))

    return hook
