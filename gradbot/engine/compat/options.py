"""What the caller asked for, and the contradictions in it."""

from __future__ import annotations

from dataclasses import dataclass

from gradbot.engine.compat.failures import refuse
from gradbot.phrases import phrase


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The keywords of `torch.autograd.gradcheck`, with its meanings and defaults.

    `eps` is the first step of the finite differences; entries that disagree are looked at again over a range of steps.
    An entry of the analytical Jacobian may differ by `atol + rtol * |numerical|`, two computations of it by
    `nondet_tol`. `masked`: only the specified elements of sparse inputs count.
    """

    eps: float = 1e-6
    atol: float = 1e-5
    rtol: float = 1e-3
    nondet_tol: float = 0.0
    check_undefined_grad: bool = True
    check_grad_dtypes: bool = False
    check_batched_grad: bool = False
    check_batched_forward_grad: bool = False
    check_forward_ad: bool = False
    check_backward_ad: bool = True
    fast_mode: bool = False
    masked: bool = False


def require_consistent(options: Options) -> None:
    """Refuses options of a first-order check that contradict each other, as torch does.

    Raises:
        AssertionError: nothing was asked for, or batching was asked for in a mode that was not.
    """
    if not (options.check_forward_ad or options.check_backward_ad):
        raise refuse(AssertionError, "bad_flags", phrase("no_mode"))
    if options.check_batched_grad and not options.check_backward_ad:
        raise refuse(
            AssertionError, "bad_flags", phrase("needs", option="check_batched_grad", needed="check_backward_ad")
        )
    if options.check_batched_forward_grad and not options.check_forward_ad:
        raise refuse(
            AssertionError, "bad_flags", phrase("needs", option="check_batched_forward_grad", needed="check_forward_ad")
        )


def require_consistent_second_order(
    *, check_fwd_over_rev: bool, check_rev_over_rev: bool, check_undefined_grad: bool, check_batched_grad: bool
) -> None:
    """Refuses options of a second-order check that contradict each other, as torch does.

    Raises:
        AssertionError: nothing was asked for, or a check of reverse over reverse without that mode.
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise refuse(AssertionError, "bad_flags", phrase("no_second_mode"))
    if check_undefined_grad and not check_rev_over_rev:
        raise refuse(
            AssertionError, "bad_flags", phrase("needs", option="check_undefined_grad", needed="check_rev_over_rev")
        )
    if check_batched_grad and not check_rev_over_rev:
        raise refuse(
            AssertionError, "bad_flags", phrase("needs", option="check_batched_grad", needed="check_rev_over_rev")
        )
