"""Holds what `gradcheck` and `gradgradcheck` say of a case against what the case states.

Contested cases, in which torch's verdict can be defended by its documentation, follow this policy. Here every one of
them gives the verdict that the case states, for these reasons:

- steps that are too wide, or drown in rounding (single precision, rounding within, an ill-chosen eps): a mismatch is
  looked at again over a range of steps, and a right gradient passes;
- memory that overlaps without a stride of zero, or that two checked inputs share: refused like a stride of zero, since
  no element can be moved alone;
- a vmap rule of a custom Function that is wrong: found, since batched grads are held against both vmaps;
- unspecified elements under masked=True: left out in both modes, as torch documents the option;
- a detached output beside differentiable ones in forward mode: left out, as in backward mode;
- gradgradcheck with all grads None: the function must then be constant, so that nothing passes unchecked;
- a backward that is not linear in grad_output under gradgradcheck: named, since the gradient is checked as a function
  of its grad_outputs too.
"""

from __future__ import annotations

import warnings
from typing import Any

from gradbot import gradcheck, gradgradcheck


def complaints(case: Any) -> list[str]:
    """In what the verdict, kind, place, exception class, raise_exception=False and warnings are not as stated."""
    check = gradcheck if case.order == 1 else gradgradcheck
    returned, error, warned = _run(check, case, {})
    said = [*_verdict(case, returned, error)]
    if case.warns and not any(case.warns in text for text in warned):
        said.append(f"no warning has {case.warns!r}; warned: {warned}")
    if case.expect != "pass":
        returned, quiet, _ = _run(check, case, {"raise_exception": False})
        if case.escapes and quiet is None:
            said.append("returned where raise_exception=False must raise all the same")
        elif not case.escapes and returned is not False:
            said.append(f"raise_exception=False: expected False, found {returned!r}, raised {quiet!r}")
    return said


def _verdict(case: Any, returned: object, error: Exception | None) -> list[str]:
    if case.expect == "pass":
        return [] if returned is True else [f"expected a pass, found {returned!r}, raised {error!r}"]
    if error is None:
        return [f"expected {case.kind}, found a pass"]
    said = []
    findings = getattr(error, "findings", ())
    if not findings or findings[0].kind not in (case.kind, *case.also):
        said.append(f"expected kind {case.kind} or {case.also}, found {findings}: {error!r}")
    if case.raises != "Exception" and type(error).__name__ != case.raises:
        said.append(f"expected {case.raises}, raised {error!r}")
    if case.where is not None and (not findings or (findings[0].output, findings[0].input) != case.where):
        said.append(f"expected it at {case.where}, found {findings}")
    return said


def _run(check: Any, case: Any, extra: dict[str, object]) -> tuple[object, Exception | None, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            returned, error = check(case.func, case.inputs(), **case.kwargs, **extra), None
        except Exception as raised:
            returned, error = None, raised
    return returned, error, [str(each.message) for each in caught]
