"""registration: torch.library.opcheck's four tests, each by itself, for ops.

opcheck passes silently over what it does not test; here a test that has nothing to look at is told as skipped.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.checks.context import Context, concluded, skipped, unsupported
from gradbot.engine.trees import leaves, map_leaves
from gradbot.engine.user_errors import one_line
from gradbot.model import CheckName, CheckResult, Finding, Note

NAME = CheckName.REGISTRATION

TESTS: Mapping[str, str] = {
    "test_schema": "registration_schema",
    "test_autograd_registration": "registration_autograd",
    "test_faketensor": "registration_fake",
    "test_aot_dispatch_dynamic": "registration_aot_dispatch",
}
"""opcheck's tests and the kinds of what they find."""


def run(context: Context) -> CheckResult:
    """Runs opcheck's tests on the op with the case's arguments."""
    if context.op is None:
        return unsupported(NAME, "not_an_op")
    args, kwargs = _arguments(context)
    requires_grad = any(isinstance(each, Tensor) and each.requires_grad for _, each in leaves((args, kwargs)))
    findings: list[Finding] = []
    notes: list[Note] = []
    for test, kind in TESTS.items():
        if test == "test_autograd_registration" and not requires_grad:
            notes.append(Note(code="opcheck_skipped", details={"test": test}))
            continue
        found = _one(context, test, kind, args, kwargs)
        if found is not None:
            findings.append(found)
    if len(notes) == len(TESTS):
        return skipped(NAME, "opcheck_skipped")
    return concluded(NAME, tuple(findings), notes=tuple(notes))


def _arguments(context: Context) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The case's arguments with fresh leaves in the places of the checked tensors; they require grad as theirs do."""
    subject = context.subject
    new = {
        id(old): each.requires_grad_(old.requires_grad)
        for old, each in zip(subject.originals, subject.copies(), strict=True)
    }
    args, kwargs = map_leaves(lambda leaf: new.get(id(leaf), leaf), (subject.args, dict(subject.kwargs)))
    return args, kwargs


def _one(context: Context, test: str, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Finding | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # opcheck turns anomaly mode on, which warns of what is then raised
            torch.library.opcheck(context.op, args, kwargs, test_utils=test)
    except Exception as error:  # noqa: BLE001 - opcheck raises its own and whatever the op raises
        return context.finding(NAME, kind, methods=(), details={"test": test, "message": _reason(error)})
    return None


def _reason(error: BaseException) -> str:
    """opcheck wraps the reason in an account of itself: the cause says more."""
    cause = error.__cause__
    return one_line(cause if cause is not None else error)
