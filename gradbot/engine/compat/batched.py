"""Derivatives of a batch of vectors by vmap, against a loop over them.

torch's gradcheck uses the older vmap, which decides what is supported here. The newer one, `torch.func.vmap`, is the
only one that calls the vmap rule of a custom Function: where it runs, its values must agree too; what it refuses says
nothing about the gradient and is left alone.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch._vmap_internals import _vmap as older_vmap

from gradbot.engine.compat.failures import GradcheckError, failure, finding, stage
from gradbot.engine.compat.forward import fwAD, signed_like
from gradbot.engine.compat.outputs import Outputs
from gradbot.engine.compat.subject import Subject, as_tuple
from gradbot.phrases import phrase

Product = Callable[[Tensor], tuple[Tensor, ...]]


def refuse_unbatched_backward(subject: Subject, base: Outputs, generator: torch.Generator) -> None:
    """Compares, output by output, vmap over the backward with a loop.

    Raises:
        GradcheckError: vmap fails with a RuntimeError, or the two disagree.
        Exception: anything else that is raised under vmap.
    """
    for number, position in enumerate(base.differentiable):
        output = base.all[position]

        def vjp(cotangent: Tensor, output: Tensor = output) -> tuple[Tensor, ...]:
            gradients = torch.autograd.grad(output, subject.tensors, cotangent, retain_graph=True, allow_unused=True)
            return tuple(
                _no_change(tensor) if each is None else each
                for each, tensor in zip(gradients, subject.tensors, strict=True)
            )

        vectors = [signed_like(output, generator) for _ in range(2)]
        with stage("backward", subject.order):
            expected = [torch.stack(shards) for shards in zip(*(vjp(each) for each in vectors), strict=True)]
        _compare(vjp, vectors, expected, subject.order, output=number, input=None)


def refuse_unbatched_forward(subject: Subject, base: Outputs, generator: torch.Generator) -> None:
    """Compares, input by input, vmap over the jvp with a loop.

    Raises:
        GradcheckError: vmap fails with a RuntimeError, or the two disagree.
        Exception: anything else that is raised under vmap.
    """
    for number, position in enumerate(subject.checked):
        tensor: Tensor = subject.arguments[position]  # type: ignore[assignment]

        def jvp(tangent: Tensor, position: int = position, tensor: Tensor = tensor) -> tuple[Tensor, ...]:
            with fwAD.dual_level():
                dual = fwAD.make_dual(tensor.detach(), tangent)
                arguments = (
                    dual if i == position else each.detach() if isinstance(each, Tensor) else each
                    for i, each in enumerate(subject.arguments)
                )
                returned = as_tuple(subject.func(*arguments))
                pairs = [fwAD.unpack_dual(returned[place]) for place in base.floating]
                return tuple(_no_change(primal) if tangent is None else tangent for primal, tangent in pairs)

        vectors = [signed_like(tensor, generator) for _ in range(2)]
        with stage("jvp", subject.order):
            expected = [torch.stack(shards) for shards in zip(*(jvp(each) for each in vectors), strict=True)]
        if expected:
            _compare(jvp, vectors, expected, subject.order, output=None, input=number)


def _compare(
    product: Product,
    vectors: Sequence[Tensor],
    expected: Sequence[Tensor],
    order: int,
    *,
    output: int | None,
    input: int | None,
) -> None:
    forward = output is None
    kind = "batched_forward_grad" if forward else "batched_grad"
    batch = torch.stack(list(vectors))
    with _squashed():
        try:
            with stage(kind, order):
                found = older_vmap(product)(batch)
        except RuntimeError as error:
            raise failure(
                f"{phrase('batched_raises', message=error)}\n\n{phrase(kind)}",
                finding(kind, kind, output=output, input=input, details={"message": str(error)[:500]}),
            ) from error
        _refuse_difference(found, expected, kind, output, input)
        try:
            newer = torch.func.vmap(product)(batch)
        except Exception:  # noqa: BLE001 - what it refuses is not part of this check
            return
        _refuse_difference(newer, expected, kind, output, input)


def _refuse_difference(
    found: Sequence[Tensor],
    expected: Sequence[Tensor],
    kind: str,
    output: int | None,
    input: int | None,
) -> None:
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        if not torch.allclose(one, other, equal_nan=True):
            raise _difference(one, other, kind, *((place, input) if output is None else (output, place)))


def _difference(found: Tensor, expected: Tensor, kind: str, output: int | None, input: int | None) -> GradcheckError:
    place = phrase("batched_differs", output=output, input=input)
    text = f"{place}\n\n{phrase(kind)}\n\nGot:\n{found}\n\nExpected:\n{expected}"
    return failure(text, finding(kind, kind, output=output, input=input))


def _no_change(like: Tensor) -> Tensor:
    return torch.zeros([], dtype=like.dtype, device=like.device).expand(like.shape)


@contextlib.contextmanager
def _squashed() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        warnings.filterwarnings("ignore", message="Please use `torch.vmap`")
        yield
