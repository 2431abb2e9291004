"""Declared intentions applied to results: a gradient that is meant to differ, a defect that is known.

`surrogate`, `straight_through`, `reversal` and `scaled` declare that the gradient is not the derivative; `stochastic`
that values and gradients are drawn; `failure` that something is known to be wrong. What then fails as declared is an
expected failure; what turns out right although it was declared is an unexpected pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradbot.model import CheckName, CheckResult, CheckSettings, Outcome, Severity
from gradbot.rules import RULES

_VALUE_KINDS = frozenset(
    {
        "jacobian_mismatch_backward",
        "jacobian_mismatch_forward",
        "undeclared_surrogate",
        "invalid_subgradient",
        "wrong_at_point",
        "low_precision_mismatch",
        "no_diff_outputs_nonzero",
    }
)
_EXPECTED_KINDS = {
    "surrogate": _VALUE_KINDS,
    "straight_through": _VALUE_KINDS,
    "reversal": _VALUE_KINDS,
    "scaled": _VALUE_KINDS,
    "stochastic": _VALUE_KINDS | {"nondeterministic", "nondeterministic_forward", "jacobian_mismatch_double_backward"},
    "failure": frozenset(RULES),
}


def apply(settings: CheckSettings, results: Sequence[CheckResult], *, draws: bool) -> tuple[CheckResult, ...]:
    """Results as the declaration `settings.expect` has them; `draws`: the function was seen to draw random numbers."""
    if not settings.expect:
        return tuple(results)
    kinds = _expected_kinds(settings)
    changed = tuple(_expected(each, kinds, settings) for each in results)
    seen = any(
        each.outcome is Outcome.EXPECTED_FAILURE or _differs(each, kinds) or _is_surrogate(each) for each in changed
    )
    if seen or (settings.expect == "stochastic" and draws):
        return changed
    return tuple(_unexpected(each, settings) for each in changed)


def declared(settings: CheckSettings, result: CheckResult) -> CheckResult:
    """One result as the declaration has it, before the others are known: no unexpected pass yet."""
    return _expected(result, _expected_kinds(settings), settings) if settings.expect else result


def _expected_kinds(settings: CheckSettings) -> frozenset[str]:
    if not settings.expect_kinds:
        return _EXPECTED_KINDS[settings.expect]
    by_id = {rule.id: kind for kind, rule in RULES.items()}
    return frozenset(by_id.get(each.upper(), each) for each in settings.expect_kinds)


def _expected(result: CheckResult, kinds: frozenset[str], settings: CheckSettings) -> CheckResult:
    if result.outcome not in (Outcome.FAILED, Outcome.ERRORED):
        return result
    wrong = [each for each in result.findings if each.severity is Severity.ERROR]
    if not wrong or any(each.kind not in kinds for each in wrong):
        return result
    return replace(
        result, outcome=Outcome.EXPECTED_FAILURE, reason="expected", details={**result.details, **_words(settings)}
    )


def _differs(result: CheckResult, kinds: frozenset[str]) -> bool:
    return any(each.kind in kinds and each.severity is not Severity.NOTE for each in result.findings)


def _is_surrogate(result: CheckResult) -> bool:
    # a kink or a jump at which nothing could be told does not prove the declaration wrong
    return result.check == CheckName.BACKWARD.value and result.outcome in (
        Outcome.INCONCLUSIVE,
        Outcome.UNSUPPORTED,
        Outcome.FAILED,
        Outcome.ERRORED,
    )


def _unexpected(result: CheckResult, settings: CheckSettings) -> CheckResult:
    if result.check != CheckName.BACKWARD.value or result.outcome is not Outcome.PASSED:
        return result
    return replace(
        result,
        outcome=Outcome.UNEXPECTED_PASS,
        reason="unexpected_pass",
        details={**result.details, **_words(settings)},
    )


def _words(settings: CheckSettings) -> dict[str, str]:
    return {"expect": settings.expect, "expected_reason": settings.reason}
