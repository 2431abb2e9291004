"""A suite that already calls gradcheck: the same outcomes for its tests, and a report of every call."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_plugin.project import Ran, make_project, outcomes, run_suite

from gradbot.model import InputSource, Outcome, Report


def reported(ran: Ran) -> Report:
    assert ran.report is not None
    return ran.report


def by_test(report: Report) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for result in report.results:
        found.setdefault(result.case.test_id.rpartition("::")[2], []).append(result.outcome)
    return found


def test_every_test_ends_as_it_does_without(plain: Ran, checked: Ran) -> None:
    assert outcomes(checked) == outcomes(plain) == "2 failed, 8 passed"


def test_every_call_is_a_case_with_the_id_of_its_test(checked: Ran) -> None:
    assert by_test(reported(checked)) == {
        "test_gradcheck": [Outcome.PASSED, Outcome.PASSED],
        "test_that_expects_a_failure": [Outcome.EXPECTED_FAILURE, Outcome.EXPECTED_FAILURE],
        "test_it": [Outcome.PASSED],
        "test_wrong": [Outcome.FAILED],
        "test_that_fails_for_another_reason": [Outcome.PASSED],
    }
    assert all(result.case.source is InputSource.GRADCHECK_CALL for result in reported(checked).results)


def test_a_failure_names_the_function_and_shows_entries(checked: Ran) -> None:
    (wrong,) = [result for result in reported(checked).results if result.outcome is Outcome.FAILED]
    assert wrong.case.target == "kernels:Wrong"
    (check,) = wrong.checks
    (finding,) = check.findings
    assert (check.check, finding.kind) == ("backward", "jacobian_mismatch_backward")
    assert finding.evidence is not None
    assert finding.evidence.entries[0].analytical == pytest.approx(2.0)
    assert finding.evidence.entries[0].numerical == pytest.approx(3.0)


def test_functions_are_placed_in_their_source(checked: Ran) -> None:
    targets = {target.id: target for target in reported(checked).targets}
    place = targets["kernels:Square"].methods["backward"]
    assert place.path == "kernels/__init__.py"
    assert place.line == 12


def test_second_order_calls_say_which_checks_they_made(checked: Ran) -> None:
    checks = {
        tuple(check.check for check in result.checks)
        for result in reported(checked).results
        if result.outcome is Outcome.PASSED
    }
    assert ("backward", "undefined_grad") in checks
    assert any("double_backward" in each for each in checks)


def test_the_closing_line_says_what_was_found(checked: Ran) -> None:
    (line,) = [line for line in checked.said.splitlines() if line.startswith("gradbot:")]
    assert "7 gradcheck calls, 4 right, 1 wrong, 2 failed as their tests expect" in line


def test_under_xdist_the_report_is_the_same(project: Path, checked: Ran) -> None:
    spread = run_suite(project, "--gradbot", "-n", "2")
    assert outcomes(spread) == outcomes(checked)
    assert by_test(reported(spread)) == by_test(reported(checked))


def test_torch_has_its_own_functions_back_afterwards() -> None:
    import inspect
    import sys

    import torch

    from gradbot.pytest_plugin.gradcheck_calls import Calls, replaced

    module = sys.modules["torch.autograd.gradcheck"]
    before = module.gradcheck.__code__, module.gradcheck.__kwdefaults__, inspect.signature(module.gradcheck)
    calls = Calls(folder=Path("unused"), root=Path("unused"))
    early = torch.autograd.gradcheck
    with pytest.raises(ZeroDivisionError), replaced(calls):  # noqa: PT012  the exception must leave the block
        assert early(torch.sin, torch.ones(2, dtype=torch.float64, requires_grad=True))
        1 / 0  # noqa: B018
    assert len(calls.pending) == 1
    after = module.gradcheck.__code__, module.gradcheck.__kwdefaults__, inspect.signature(module.gradcheck)
    assert after == before
    assert "_gradbot_gradcheck" not in vars(module)


def test_a_suite_without_gradcheck_calls_gets_no_report(tmp_path: Path) -> None:
    project = make_project(tmp_path, "def test_nothing():\n    pass\n")
    assert "no gradcheck call was seen" in run_suite(project, "--gradbot").said
    assert not (project / ".gradbot").exists()
