"""What is declared, and what came of it."""

from __future__ import annotations

import pytest
import torch
from engine.checks.wrong import real, result_of, rule

from gradbot.engine.api import check
from gradbot.errors import UsageError
from gradbot.model import CaseResult, Outcome

ROUND = rule(torch.round, lambda ctx, x, g: g)
REVERSE = rule(lambda x: x.clone(), lambda ctx, x, g: -g)
RIGHT = rule(torch.sin, lambda ctx, x, g: g * x.cos())
CLIPS = rule(torch.round, lambda ctx, x, g: g.clamp(-1e-3, 1e-3))


def declared(function: type[torch.autograd.Function], expect: str, **options: object) -> CaseResult:
    return check(function.apply, (real(3),), expect=expect, reason="that is the point of it", **options)


@pytest.mark.parametrize(
    ("function", "expect"),
    [(ROUND, "straight_through"), (ROUND, "surrogate"), (REVERSE, "reversal"), (REVERSE, "scaled"), (ROUND, "failure")],
)
def test_what_fails_as_declared_is_an_expected_failure(function: type, expect: str) -> None:
    case = declared(function, expect)
    assert case.outcome is Outcome.EXPECTED_FAILURE
    result = result_of(case, "backward")
    assert (result.outcome, result.reason) == (Outcome.EXPECTED_FAILURE, "expected")
    assert result.details["expected_reason"] == "that is the point of it"
    assert result.findings


@pytest.mark.parametrize("expect", ["straight_through", "surrogate", "reversal", "scaled", "failure", "stochastic"])
def test_what_is_right_although_declared_is_an_unexpected_pass(expect: str) -> None:
    case = declared(RIGHT, expect)
    assert case.outcome is Outcome.UNEXPECTED_PASS
    assert result_of(case, "backward").outcome is Outcome.UNEXPECTED_PASS


def test_a_declaration_excuses_no_other_defect() -> None:
    case = declared(CLIPS, "straight_through")
    assert case.outcome is Outcome.FAILED
    assert result_of(case, "backward").outcome is Outcome.EXPECTED_FAILURE
    assert result_of(case, "grad_outputs").outcome is Outcome.FAILED


def test_expected_kinds_narrow_a_declaration_by_name_or_id() -> None:
    assert declared(CLIPS, "failure", expect_kinds=["GB203", "jacobian_mismatch_backward"]).outcome in (
        Outcome.EXPECTED_FAILURE,
    )
    assert declared(CLIPS, "failure", expect_kinds=["nonlinear_backward"]).outcome is Outcome.FAILED


def test_a_function_that_draws_and_is_declared_stochastic_is_no_unexpected_pass() -> None:
    case = check(torch.nn.functional.dropout, (real(9),), expect="stochastic", reason="it drops")
    assert case.outcome is Outcome.PASSED


def test_a_known_error_of_user_code_is_expected() -> None:
    def refuse(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not here")

    case = check(refuse, (real(3),), expect="failure", reason="a known bug")
    assert case.outcome is Outcome.EXPECTED_FAILURE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expect": "wonders", "reason": "x"}, "expect is 'wonders'; it is one of surrogate"),
        ({"expect": "surrogate"}, "needs a reason"),
        ({"checks": ["backwards"]}, "checks has 'backwards'; the checks are backward"),
        ({"mode": "slow"}, "mode is 'slow'; it is one of auto, fast, exact"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(torch.sin, (real(2),), **options)


def test_checks_that_were_not_selected_are_told_as_skipped() -> None:
    case = check(torch.sin, (real(2),), checks=["backward"])
    assert {each.check for each in case.checks if each.outcome is Outcome.PASSED} == {"backward"}
    assert {each.reason for each in case.checks if each.outcome is Outcome.SKIPPED} == {"not_selected"}


def test_stages_are_announced_before_they_begin() -> None:
    from gradbot.engine.api import check_case
    from gradbot.model import Case, InputSource

    stages: list[str] = []
    case = Case(id="case", target="case", name="", source=InputSource.DECLARED, reference="")
    result = check_case(case, torch.sin, (real(2),), {}, on_stage=stages.append)
    assert stages[0] == "forward"
    assert stages[1:] == [each.check for each in result.checks]
