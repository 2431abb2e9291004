"""What the engine found, as the project wants it told: places relative to the project, ignored rules left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gradbot.model import CaseResult, CheckResult, Finding, Location, Outcome, Severity

_WORST_FIRST = (
    Outcome.FAILED,
    Outcome.ERRORED,
    Outcome.UNEXPECTED_PASS,
    Outcome.EXPECTED_FAILURE,
    Outcome.INCONCLUSIVE,
    Outcome.PASSED,
    Outcome.UNSUPPORTED,
    Outcome.SKIPPED,
)


def settle(result: CaseResult, root: Path, selects_rule: Callable[[str], bool]) -> CaseResult:
    """The result with POSIX paths relative to `root` where they lie in it, and only with findings of selected rules.

    A check whose errors are all of ignored rules counts as skipped, with the reason: it was made, and what it found
    is not to count. A case that crashed, or whose outcome is not that of a check, ended so whatever its checks found.
    """
    checks = tuple(_selected(_placed(check, root), selects_rule) for check in result.checks)
    by_checks = result.crash is None and any(each.outcome is result.outcome for each in result.checks)
    changed = by_checks and any(new.outcome is not old.outcome for new, old in zip(checks, result.checks, strict=True))
    outcome = min((each.outcome for each in checks), key=_WORST_FIRST.index) if changed else result.outcome
    return replace(result, checks=checks, outcome=outcome, location=relative(result.location, root))


def relative(location: Location | None, root: Path) -> Location | None:
    """A place whose path is relative to the project if it lies in it."""
    if location is None:
        return None
    path = Path(location.path)
    if not path.is_absolute() or not path.is_relative_to(root):
        return location
    return replace(location, path=path.relative_to(root).as_posix())


def _placed(check: CheckResult, root: Path) -> CheckResult:
    findings = tuple(replace(each, location=relative(each.location, root)) for each in check.findings)
    return replace(check, findings=findings)


def _selected(check: CheckResult, selects_rule: Callable[[str], bool]) -> CheckResult:
    kept = tuple(finding for finding in check.findings if selects_rule(finding.kind))
    if len(kept) == len(check.findings):
        return check
    dropped = [finding for finding in check.findings if finding not in kept]
    if _errors(kept) or not _errors(dropped):
        return replace(check, findings=kept)
    rules = ", ".join(sorted({finding.rule for finding in dropped}))
    return replace(
        check,
        findings=kept,
        outcome=Outcome.SKIPPED,
        capability=None,
        reason="ignored_rules",
        details={"rules": rules},
    )


def _errors(findings: tuple[Finding, ...] | list[Finding]) -> bool:
    return any(finding.severity is Severity.ERROR for finding in findings)
