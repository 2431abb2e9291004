"""The process as it was found: whatever user code or a check changes is put back, also after any exception."""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


@contextlib.contextmanager
def preserved(tensors: Sequence[Tensor] = ()) -> Iterator[None]:
    """Restores global state and the values, `grad` and `requires_grad` of `tensors` on the way out.

    Global state: random generators of torch (CPU and every CUDA device in use), Python and NumPy; default dtype, grad
    mode, number of threads, deterministic and anomaly modes, autocast, warning filters.
    """
    with contextlib.ExitStack() as stack:
        # the tensors last, so that a failure there leaves no other state behind
        for restore in (_random_state, _torch_state, _warning_filters):
            stack.enter_context(restore())
        stack.enter_context(unchanged(tensors))
        yield


@contextlib.contextmanager
def unchanged(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Restores values, `grad` and `requires_grad` of `tensors` on the way out, without touching their versions."""
    kept = [(each, each.detach().clone(), each.requires_grad) for each in tensors]
    # a backward inside accumulates into a grad that is there already, in its own memory
    grads = [(each, each.grad, _copy(each.grad)) for each in tensors if each.is_leaf]
    try:
        yield
    finally:
        with torch.no_grad():
            for each, values, requires_grad in kept:
                _put_back(each, values)
                if each.is_leaf and each.requires_grad is not requires_grad:
                    each.requires_grad_(requires_grad)
            for each, grad, grad_values in grads:
                if grad is not None and grad_values is not None:
                    _put_back(grad, grad_values)
                each.grad = grad


def _copy(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().clone()


def _put_back(tensor: Tensor, values: Tensor) -> None:
    if tensor.is_mkldnn:
        tensor.data.copy_(values)
    elif tensor.layout is torch.sparse_coo:
        # `data` of a sparse tensor is another tensor that shares its values: they are what can be put back
        _copy_back(tensor._values(), values._values())
    elif tensor.layout is not torch.strided:
        _copy_back(tensor.values(), values.values())
    else:
        _copy_back(tensor.data, values)


def _copy_back(held: Tensor, values: Tensor) -> None:
    # memory that overlaps itself cannot be written to: leave alone what has not changed
    if held.shape == values.shape and not _same(held, values):
        held.copy_(values)


def _same(left: Tensor, right: Tensor) -> bool:
    # bitwise enough: NaN against NaN counts as changed and is copied, which does no harm
    return left.device.type != "meta" and left.dtype is not torch.complex32 and torch.equal(left, right)


@contextlib.contextmanager
def _random_state() -> Iterator[None]:
    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state: Any = numpy.random.get_state() if numpy is not None else None
    torch_state = torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        if cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)


@contextlib.contextmanager
def _torch_state() -> Iterator[None]:
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    grad, anomaly = torch.is_grad_enabled(), torch.is_anomaly_enabled()
    check_nan = torch.is_anomaly_check_nan_enabled()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    autocast = [(kind, torch.is_autocast_enabled(kind)) for kind in ("cpu", "cuda")]
    try:
        yield
    finally:
        for kind, enabled in autocast:
            if torch.is_autocast_enabled(kind) is not enabled:
                torch.set_autocast_enabled(kind, enabled)
        if torch.get_default_dtype() is not dtype:
            torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch._C._set_grad_enabled(grad)
        torch.autograd.set_detect_anomaly(anomaly, check_nan)
        if torch.are_deterministic_algorithms_enabled() is not deterministic:
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


@contextlib.contextmanager
def _warning_filters() -> Iterator[None]:
    # not warnings.catch_warnings: it would also undo a capture that began outside and swallow nothing we want kept
    filters = list(warnings.filters)
    show = warnings.showwarning
    try:
        yield
    finally:
        warnings.filters[:] = filters  # type: ignore[index]
        warnings.showwarning = show
        with contextlib.suppress(AttributeError):
            warnings._filters_mutated()  # type: ignore[attr-defined]
