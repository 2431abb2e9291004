"""grad_metadata: each gradient has the shape, dtype, layout and device of its input, and there are as many.

autograd mends some of what a backward returns (it casts between real dtypes, expands, sums to size) and refuses the
rest: number, shape, device, complex for real. Its refusals are broken contracts here, by `user_errors`; what it lets
through is layouts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradbot.engine.checks.context import Context, concluded, cotangents, raised
from gradbot.model import CheckName, CheckResult, Finding

NAME = CheckName.GRAD_METADATA


def run(context: Context) -> CheckResult:
    """Looks at the gradients that arrive at the inputs."""
    inputs = context.subject.inputs
    try:
        outputs = context.subject.graph()
        directions = cotangents(outputs, context.generator(5))
        gradients = torch.autograd.grad(outputs, inputs, directions, allow_unused=True)
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "backward")
    findings = [
        finding
        for position, (gradient, like) in enumerate(zip(gradients, inputs, strict=True))
        if gradient is not None and (finding := _arrived(context, position, gradient, like)) is not None
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
