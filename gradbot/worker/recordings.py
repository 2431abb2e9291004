"""Recorded calls that do not fit the function any more: they say nothing about its gradient."""

from __future__ import annotations

from dataclasses import replace

from gradbot.model import CaseResult, InputSource, Outcome


def stale(result: CaseResult) -> bool:
    """Whether a recorded call is refused by the forward: the signature, or what it accepts, has changed since."""
    kinds = {finding.kind for check in result.checks for finding in check.findings}
    recorded = result.case.source is InputSource.RECORDED
    return recorded and result.outcome is Outcome.ERRORED and kinds == {"user_error_in_forward"}


def as_stale(result: CaseResult, message: str) -> CaseResult:
    """The result as one that decided nothing, with what was raised."""
    details = {"message": message}
    return replace(result, outcome=Outcome.INCONCLUSIVE, reason="stale_recording", details=details, checks=())
