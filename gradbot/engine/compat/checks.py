"""The two functions that suites call: `gradcheck` and `gradgradcheck`, with torch's signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

from gradbot.engine.compat.first_order import check
from gradbot.engine.compat.options import Options, require_consistent, require_consistent_second_order
from gradbot.engine.compat.second_order import check_second_order
from gradbot.engine.compat.subject import as_tuple, subject_of
from gradbot.engine.isolation import preserved


def gradcheck(
    func: Callable[..., object],
    inputs: object,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Checks the gradients of `func` at `inputs` against finite differences; a drop-in for torch's `gradcheck`.

    Args:
        func: takes the inputs, returns a tensor or a tuple of tensors.
        inputs: a tensor or a tuple of anything; real and complex tensors that require grad are checked.
        eps: the first step of the finite differences. Entries that disagree are looked at again at other steps.
        atol, rtol: an entry may differ by `atol + rtol * |numerical|`.
        raise_exception: if False, what is wrong with a derivative returns False; bad inputs, and errors of `func`
            itself, are raised all the same.
        nondet_tol: how much two computations of one derivative may differ.
        check_undefined_grad: whether undefined grad_outputs and tangents must be taken for zeros.
        check_grad_dtypes: whether a derivative must be complex where its tensor is, and real where it is not.
        check_batched_grad: whether vmap over the backward must work.
        check_batched_forward_grad: whether vmap over the jvp must work.
        check_forward_ad: whether forward mode is checked.
        check_backward_ad: whether backward mode is checked.
        fast_mode: projections instead of full Jacobians where they suffice; the verdict is the same.
        masked: whether unspecified elements of sparse tensors are left out.

    Returns:
        True if everything is right.

    Raises:
        GradcheckError: a derivative is wrong; `findings` says where and by how much.
        ValueError: inputs or outputs cannot be checked.
        RuntimeError: checked inputs overlap in memory.
        AssertionError: options contradict each other, or outputs change their form near the inputs.
    """
    options = Options(
        eps=eps,
        atol=atol,
        rtol=rtol,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_batched_forward_grad=check_batched_forward_grad,
        check_forward_ad=check_forward_ad,
        check_backward_ad=check_backward_ad,
        fast_mode=fast_mode,
        masked=bool(masked),
    )
    require_consistent(options)
    try:
        with _prepared(inputs):
            check(subject_of(func, inputs), options)
    except TorchGradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., object],
    inputs: object,
    grad_outputs: object = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Checks the gradients of the gradients of `func`; a drop-in for torch's `gradgradcheck`.

    Args:
        func, inputs: as for `gradcheck`.
        grad_outputs: one for every differentiable output, or None for random ones.
        gen_non_contig_grad_outputs: whether random grad_outputs are not contiguous.
        check_fwd_over_rev: whether forward mode over backward mode is checked.
        check_rev_over_rev: whether backward mode over backward mode is checked.
        eps, atol, rtol, raise_exception, nondet_tol, check_undefined_grad, check_grad_dtypes, check_batched_grad,
        fast_mode, masked: as for `gradcheck`, of the gradient as a function.

    Returns:
        True if everything is right.

    Raises:
        As `gradcheck`.
    """
    require_consistent_second_order(
        check_fwd_over_rev=check_fwd_over_rev,
        check_rev_over_rev=check_rev_over_rev,
        check_undefined_grad=check_undefined_grad,
        check_batched_grad=check_batched_grad,
    )
    options = Options(
        eps=eps,
        atol=atol,
        rtol=rtol,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=bool(masked),
    )
    try:
        with _prepared((*as_tuple(inputs), *as_tuple(grad_outputs))):
            check_second_order(func, inputs, grad_outputs, options, noncontiguous=gen_non_contig_grad_outputs)
    except TorchGradcheckError:
        if raise_exception:
            raise
        return False
    return True


@contextmanager
def _prepared(inputs: object) -> Iterator[None]:
    """Grad mode on; the inputs and all global state are as before on the way out."""
    tensors = [each for each in as_tuple(inputs) if isinstance(each, Tensor)]
    with preserved(tensors), torch.enable_grad():
        yield
