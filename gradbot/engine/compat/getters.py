"""The three Jacobian getters that torch deprecated and still offers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.compat.layouts import Coordinates, coordinates
from gradbot.engine.compat.outputs import refuse_change
from gradbot.engine.compat.subject import as_tuple, is_checked, is_tensor
from gradbot.phrases import phrase


def get_numerical_jacobian(
    fn: Callable[[Any], object], inputs: Any, target: Any = None, eps: float = 1e-3, grad_out: float = 1.0
) -> tuple[Tensor, ...]:
    """The numerical Jacobians of the first output of `fn(inputs)` by every tensor of `target` that requires grad.

    Deprecated. `target` defaults to `inputs`; `fn` takes them as one tuple. Each Jacobian is
    (input elements, output elements).

    Raises:
        ValueError: an output is complex, or `grad_out` is not 1.0.
    """
    warnings.warn(phrase("deprecated", name="get_numerical_jacobian"), FutureWarning, stacklevel=2)
    _refuse_grad_out("get_numerical_jacobian", grad_out)

    def packed(*arguments: object) -> object:
        return fn(arguments)

    outputs = as_tuple(packed(*as_tuple(inputs)))
    if any(each.is_complex() for each in outputs):  # type: ignore[attr-defined]
        raise ValueError(phrase("complex_output", name="get_numerical_jacobian"))
    targets = inputs if target is None else target
    places = [i for i, each in enumerate(targets) if is_checked(each)]
    return tuple(
        get_numerical_jacobian_wrt_specific_input(packed, place, inputs, outputs, eps, input=each)[0]
        for each, place in zip(_requiring_grad(targets), places, strict=False)
    )


def get_analytical_jacobian(
    inputs: Any, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """The Jacobians of `output` by every tensor of `inputs` that requires grad, by backward mode.

    Deprecated. Returns the Jacobians, each (input elements, output elements); whether a second computation agrees to
    `nondet_tol`; whether all grads have the sizes, and whether they have the dtypes, of their inputs.

    Raises:
        ValueError: the output is complex, or `grad_out` is not 1.0.
    """
    warnings.warn(phrase("deprecated", name="get_analytical_jacobian"), FutureWarning, stacklevel=2)
    _refuse_grad_out("get_analytical_jacobian", grad_out)
    if output.is_complex():
        raise ValueError(phrase("complex_output", name="get_analytical_jacobian"))
    tensors = list(_requiring_grad(inputs))
    first, sizes, dtypes = _analytical(tensors, output)
    again, _, _ = _analytical(tensors, output)
    reentrant = all(
        not one.numel() or float((one - other).abs().max()) <= nondet_tol
        for one, other in zip(first, again, strict=True)
    )
    return first, reentrant, sizes, dtypes


def get_numerical_jacobian_wrt_specific_input(
    fn: Callable[..., object],
    input_idx: int,
    inputs: Any,
    outputs: Any,
    eps: float,
    input: Any = None,
    is_forward_ad: bool = False,
) -> tuple[Tensor, ...]:
    """The numerical Jacobians of all real or complex outputs of `fn(*inputs)` by one input.

    Each is (input elements, output elements). For a complex input the entries are df/dRe + i df/dIm.

    Raises:
        AssertionError: the input requires no grad, outputs change their form, or complex ones are not supported here.
    """
    tensor: Tensor = inputs[input_idx] if input is None else input
    if not tensor.requires_grad:
        raise AssertionError(phrase("not_requiring_grad"))
    moving = coordinates(tensor, masked=True)
    kept = [each for each in outputs if each.is_floating_point() or each.is_complex()]
    dtypes = [tensor.dtype if tensor.is_complex() else each.dtype for each in kept]
    jacobians = [
        torch.zeros(tensor.numel(), each.numel(), dtype=dtype, device=each.device)
        for each, dtype in zip(kept, dtypes, strict=True)
    ]
    for which, position in enumerate(moving.positions.tolist()):
        slopes = [_slopes(fn, input_idx, inputs, moving, which, step) for step in (eps * part for part in moving.parts)]
        for jacobian, parts in zip(jacobians, zip(*slopes, strict=True), strict=True):
            if parts[0].is_complex() and (len(parts) == 2 or not is_forward_ad):
                raise AssertionError(phrase("complex_slope"))
            jacobian[position] = parts[0] + 1j * parts[1] if len(parts) == 2 else parts[0]
    return tuple(jacobians)


def _slopes(
    fn: Callable[..., object], place: int, inputs: Any, moving: Coordinates, which: int, step: complex
) -> list[Tensor]:
    ends = []
    for sign in (1, -1):
        with moving.moved(which, sign * step):
            arguments = [
                moving.passed() if i == place and moving.tensor.is_mkldnn else each
                for i, each in enumerate(as_tuple(inputs))
            ]
            ends.append([each.detach().clone() for each in as_tuple(fn(*arguments))])  # type: ignore[attr-defined]
    upper, lower = ends
    where = f"on index {moving.index(which)} by {abs(step)}"
    refuse_change(tuple((x.shape, x.dtype) for x in lower), tuple((x.shape, x.dtype) for x in upper), where)
    return [
        ((high - low) / (2 * abs(step))).reshape(-1)
        for high, low in zip(upper, lower, strict=True)
        if high.is_floating_point() or high.is_complex()
    ]


def _analytical(tensors: Sequence[Tensor], output: Tensor) -> tuple[tuple[Tensor, ...], bool, bool]:
    jacobians = tuple(
        torch.zeros(each.numel(), output.numel(), dtype=each.dtype, device=each.device) for each in tensors
    )
    sizes = dtypes = True
    zeros = torch.zeros_like(output, memory_format=torch.legacy_contiguous_format)
    for column in range(output.numel()):
        cotangent = zeros.clone()
        cotangent.view(-1)[column] = 1
        grads: tuple[Tensor | None, ...] = torch.autograd.grad(
            output, tensors, cotangent, retain_graph=True, allow_unused=True
        )
        for jacobian, grad, tensor in zip(jacobians, grads, tensors, strict=True):
            if grad is None:
                continue
            sizes &= grad.size() == tensor.size()
            dtypes &= grad.dtype == tensor.dtype
            dense = grad if grad.layout is torch.strided else grad.to_dense()
            jacobian[:, column] = dense.reshape(-1)
    return jacobians, sizes, dtypes


def _requiring_grad(tensors: object) -> Iterable[Tensor]:
    if is_tensor(tensors):
        if tensors.requires_grad:
            yield tensors
    elif isinstance(tensors, Iterable) and not isinstance(tensors, str):
        for each in tensors:
            yield from _requiring_grad(each)


def _refuse_grad_out(name: str, grad_out: float) -> None:
    if grad_out != 1.0:
        raise ValueError(phrase("other_grad_out", name=name))
