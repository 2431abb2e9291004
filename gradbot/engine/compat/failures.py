"""How a check says no: torch's exception classes, each with findings as data.

What gradcheck itself finds wrong is a `GradcheckError`. Bad inputs and options keep torch's classes (`ValueError`,
`RuntimeError`, `AssertionError`), and whatever user code or the autograd engine raised passes through as it is. All of
them carry `findings`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

from gradbot.model import Evidence, Finding, Scalar
from gradbot.rules import RULES


class GradcheckError(TorchGradcheckError):
    """A gradient check failed. `findings` says what, where and by how much; the first is what the text tells."""

    def __init__(self, message: str, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


def finding(
    kind: str,
    check: str,
    *,
    output: int | None = None,
    input: int | None = None,
    evidence: Evidence | None = None,
    details: Mapping[str, Scalar] | None = None,
) -> Finding:
    """One thing wrong, with the rule of its kind."""
    rule = RULES[kind]
    return Finding(
        rule=rule.id,
        kind=kind,
        check=check,
        severity=rule.severity,
        output=output,
        input=input,
        evidence=evidence,
        details=details or {},
    )


def failure(message: str, *findings: Finding) -> GradcheckError:
    """The error to raise for something that is wrong with a derivative."""
    return GradcheckError(message, findings)


def refuse(error: type[Exception], kind: str, message: str, *, input: int | None = None) -> Exception:
    """The error to raise for inputs, outputs or options that cannot be checked; never a `GradcheckError`."""
    return carrying(error(message), finding(kind, "inputs", input=input, details={"message": message}))


def carrying(error: Exception, *findings: Finding) -> Exception:
    """The same exception with `findings` attached, so that its kind can be read as data."""
    # an exception class with slots takes none: then the class and the text have to do
    with contextlib.suppress(AttributeError, TypeError):
        error.findings = findings  # type: ignore[attr-defined]
    return error


_STAGES = {
    "forward": "user_error_in_forward",
    "first_backward": "user_error_in_backward",
    "backward": "user_error_in_backward",
    "jvp": "user_error_in_jvp",
    "undefined_grad": "undefined_grad",
    "undefined_tangent": "undefined_tangent",
    "batched_grad": "batched_grad",
    "batched_forward_grad": "batched_forward_grad",
}

# torch tells these apart by the text of its messages only
_ENGINE_MESSAGES: tuple[tuple[str, str], ...] = (
    (r"implement the jvp function|does not support it because it has not been implemented", "missing_jvp"),
    (
        r"implement either the backward or vjp|derivative for .* is not implemented|no autograd formula was registered",
        "missing_backward",
    ),
    (r"incorrect number of gradients", "wrong_grad_count"),
    (r"invalid gradient at index .* but expected shape|has changed the size of value", "wrong_grad_size"),
    (r"invalid gradient at index .* expected device", "wrong_grad_device"),
    (r"invalid gradient at index .* expected layout|has changed the layout of value", "wrong_grad_layout"),
    (r"invalid gradient at index .* expected (type|dtype)|input_is_complex == grad_is_complex", "grad_dtype"),
    (r"has changed the type of value \(was torch\.\S+ got torch\.(\w+\.)?(sparse|mkldnn)", "wrong_grad_layout"),
    (r"has changed the type of value", "grad_dtype"),
    (r"custom Function.* jvp |inplace custom Function|'s jvp returned", "bad_jvp_contract"),
)
_TWICE = re.compile(
    r"double.?backward|differentiate twice|twice a function|not differentiable twice"
    r"|can't call numpy\(\) on tensor that requires grad",
    re.IGNORECASE,
)
_NO_FORMULA = re.compile(r"derivative for .* is not implemented|does not require grad and does not have a grad_fn")


def kind_of(error: Exception, stage: str, order: int) -> str:
    """The kind of an exception that user code or the autograd engine raised at `stage` of a check of `order`."""
    if isinstance(error, RuntimeError):
        text = str(error)
        if order == 2 and (_TWICE.search(text) or (stage != "first_backward" and _NO_FORMULA.search(text))):
            return "not_twice_differentiable"
        for pattern, kind in _ENGINE_MESSAGES:
            if re.search(pattern, text, re.DOTALL):
                return kind
    return _STAGES[stage]


@contextlib.contextmanager
def stage(name: str, order: int = 1) -> Iterator[None]:
    """Attaches findings to whatever is raised inside, and lets it through. The innermost stage names the kind."""
    try:
        yield
    except Exception as error:
        if not getattr(error, "findings", ()):
            details = {"stage": name, "error": type(error).__name__, "message": str(error)[:500]}
            carrying(error, finding(kind_of(error, name, order), name, details=details))
        raise
