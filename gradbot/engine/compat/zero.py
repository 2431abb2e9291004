"""Input grads for grad_outputs of zeros: they must be zeros, of their input's layout, dtype, device and size."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradbot.engine.compat.backward import vjp
from gradbot.engine.compat.failures import GradcheckError, failure, finding
from gradbot.engine.compat.layouts import SPARSE, flat_reals
from gradbot.engine.compat.options import Options
from gradbot.engine.compat.outputs import Outputs
from gradbot.engine.compat.subject import Subject
from gradbot.phrases import phrase


def refuse_zeros_ignored(subject: Subject, base: Outputs, options: Options) -> None:
    """Runs the backward of all differentiable outputs with zeros.

    Raises:
        GradcheckError: an input grad is not zero, or not of its input's form.
    """
    outputs = [base.all[position] for position in base.differentiable]
    zeros = [torch.zeros_like(each, memory_format=torch.legacy_contiguous_format) for each in outputs]
    gradients = vjp(subject, outputs, zeros)
    for input, (gradient, tensor) in enumerate(zip(gradients, subject.tensors, strict=True)):
        if gradient is None:
            continue
        refuse_form(gradient, tensor, input)
        values = flat_reals(gradient)
        # masked gradients of sparse tensors may carry rounding
        zero = torch.allclose(values, torch.zeros_like(values)) if options.masked else bool(values.eq(0).all())
        if not zero:
            raise failure(
                phrase("zeros_ignored"),
                finding("backward_not_mul_by_grad_output", "backward", input=input),
            )
        for name, found, expected, kind in (
            ("type", gradient.dtype, tensor.dtype, "grad_dtype"),
            ("device", gradient.device, tensor.device, "wrong_grad_device"),
            ("size", gradient.size(), tensor.size(), "wrong_grad_size"),
        ):
            if found != expected:
                raise failure(
                    phrase("form", which=name, found=found, expected=expected), finding(kind, "backward", input=input)
                )


def refuse_wrong_form(subject: Subject, outputs: Sequence[Tensor], cotangents: Sequence[Tensor]) -> None:
    """Runs the backward once more and looks at the layouts of what it returns.

    Raises:
        GradcheckError: a sparse or mkldnn input grad has another layout than its input.
    """
    gradients = vjp(subject, outputs, cotangents)
    for input, (gradient, tensor) in enumerate(zip(gradients, subject.tensors, strict=True)):
        if gradient is not None:
            refuse_form(gradient, tensor, input)


def refuse_form(gradient: Tensor, tensor: Tensor, input: int) -> None:
    """Refuses an input grad that is not strided and of another layout, or of other sparse dims, than its input.

    Raises:
        GradcheckError: it is.
    """
    if gradient.layout is torch.strided:
        return
    if gradient.layout is not tensor.layout:
        raise _form(
            "wrong_grad_layout",
            phrase("layout", found=gradient.layout, expected=tensor.layout),
            input,
        )
    if gradient.layout in SPARSE:
        name = str(gradient.layout).replace("torch.", "").replace("_coo", "")
        for which, found, expected in (
            ("sparse_dim", gradient.sparse_dim(), tensor.sparse_dim()),
            ("dense_dim", gradient.dense_dim(), tensor.dense_dim()),
        ):
            if found != expected:
                raise _form(
                    "wrong_grad_sparse_dims",
                    phrase("sparse_dims", layout=name, which=which, found=found, expected=expected),
                    input,
                )


def _form(kind: str, message: str, input: int) -> GradcheckError:
    return failure(message, finding(kind, "backward", input=input, details={"message": message}))
