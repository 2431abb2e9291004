"""What an exception out of user code means for a check: a missing capability, a broken contract, or just an error.

torch raises the same few classes for all of them, so that the text of its messages decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gradbot.model import Outcome, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """`kind` is a key of `rules.RULES` or empty, `reason` a code of `messages.REASONS`."""

    outcome: Outcome
    kind: str = ""
    reason: str = ""
    details: dict[str, Scalar] = field(default_factory=dict)


_UNSUPPORTED: tuple[tuple[str, str], ...] = (
    ("once_differentiable", "once_differentiable"),
    ("implement either the backward or vjp", "no_backward"),
    ("no autograd formula was registered", "no_backward"),
    ("must implement the jvp", "no_jvp"),
    ("must implement the `jvp`", "no_jvp"),
    ("implement the jvp function", "no_jvp"),
    ("does not support it because it has not been implemented yet", "no_jvp"),
    ("does not support forward mode AD", "no_jvp"),
    ("that does not support it", "no_jvp"),
    ("forward AD not implemented", "no_jvp"),
    ("derivative for", "no_formula"),
    ("Can't call numpy() on Tensor", "numpy_backward"),
    ("is not implemented for", "not_implemented"),
    ("not implemented for", "not_implemented"),
    ("not yet supported", "not_implemented"),
)

_BROKEN: tuple[tuple[str, str], ...] = (
    ("returned an incorrect number of gradients", "wrong_grad_count"),
    ("but expected shape compatible with", "wrong_grad_size"),
    ("expected device", "wrong_grad_device"),
    ("input_is_complex == grad_is_complex", "grad_dtype"),
    ("jvp, the output of forward", "bad_jvp_contract"),
    ("forward is returning a view (or an input as-is) but the j", "bad_jvp_contract"),
    ("must also be a view", "bad_jvp_contract"),
    ("is expected to be a view", "bad_jvp_contract"),
    ("should also be modified inplace", "bad_jvp_contract"),
    ("expected to be modified inplace", "bad_jvp_contract"),
)

_KINDS_BY_STAGE = {
    "forward": "user_error_in_forward",
    "backward": "user_error_in_backward",
    "jvp": "user_error_in_jvp",
}


def meaning(error: BaseException, stage: str) -> Meaning:
    """What `error`, raised at `stage` ("forward", "backward" or "jvp"), says about the target."""
    text = str(error)
    details: dict[str, Scalar] = {"stage": stage, "message": one_line(error)}
    for part, kind in _BROKEN:
        if part in text and (kind != "wrong_grad_device" or "gradient" in text):
            return Meaning(outcome=Outcome.FAILED, kind=kind, reason="user_error", details=details)
    if isinstance(error, (RuntimeError, NotImplementedError, TypeError)):
        for part, reason in _UNSUPPORTED:
            if part in text:
                return Meaning(outcome=Outcome.UNSUPPORTED, reason=reason, details=details)
    return Meaning(outcome=Outcome.ERRORED, kind=_KINDS_BY_STAGE[stage], reason="user_error", details=details)


def one_line(error: BaseException) -> str:
    """An exception in one line: its class and the first line of its message, capped."""
    first = (str(error).strip().splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def is_ours(error: BaseException) -> bool:
    """Whether gradbot itself is wrong, and not user code: the last Python frame is ours, and torch did not refuse.

    torch refuses with RuntimeError and its subclasses. Where `Subject` calls a function that is not written in Python,
    its own frame is the last one.
    """
    trace = error.__traceback__
    if trace is None or isinstance(error, RuntimeError):
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    return module.startswith("gradbot.engine.") and module != "gradbot.engine.subject"
