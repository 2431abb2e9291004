"""Results of one case on several devices, held against each other."""

from __future__ import annotations

from collections.abc import Iterable

from gradbot.model import Case, CaseResult, CheckResult, Finding, Outcome, Severity
from gradbot.rules import RULES

_VERDICTS = frozenset({Outcome.PASSED, Outcome.FAILED})


def differences(results: Iterable[CaseResult]) -> tuple[Finding, ...]:
    """A finding for each check that passed on one device and failed on another, with everything else equal.

    A check that came to no verdict on a device (unsupported, inconclusive, crashed) tells nothing here.
    """
    groups: dict[tuple[str, ...], list[CaseResult]] = {}
    for result in results:
        groups.setdefault(_same_but_for_device(result.case), []).append(result)
    found = [
        finding
        for _, group in sorted(groups.items())
        if len({_device_kind(result.case) for result in group}) > 1
        for finding in _differences(group)
    ]
    return tuple(found)


def _same_but_for_device(case: Case) -> tuple[str, ...]:
    return case.target, case.name, case.dtype, case.reference


def _device_kind(case: Case) -> str:
    return case.device.partition(":")[0]


def _differences(group: list[CaseResult]) -> list[Finding]:
    verdicts: dict[str, dict[Outcome, tuple[CaseResult, CheckResult]]] = {}
    for result in sorted(group, key=lambda each: each.case.device):
        for check in result.checks:
            if check.outcome in _VERDICTS:
                verdicts.setdefault(check.check, {}).setdefault(check.outcome, (result, check))
    rule = RULES["device_difference"]
    return [
        Finding(
            rule=rule.id,
            kind=rule.kind,
            check=name,
            severity=Severity.ERROR,
            location=next((each.location for each in seen[Outcome.FAILED][1].findings), None),
            details={
                "target": group[0].case.target,
                "case": group[0].case.name,
                "dtype": group[0].case.dtype,
                "right_on": seen[Outcome.PASSED][0].case.device,
                "wrong_on": seen[Outcome.FAILED][0].case.device,
            },
        )
        for name, seen in verdicts.items()
        if len(seen) == len(_VERDICTS)
    ]
