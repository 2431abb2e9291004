"""A suite that already calls gradcheck: the same outcomes for its tests, and a report of every call."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_plugin.project import make_project, outcomes, run_in

from gradbot import codec
from gradbot.model import InputSource, Outcome, Report

PLAIN = ("pytest", "-q", "-p", "no:cacheprovider")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def ran(project: Path) -> tuple[str, Report]:
    done = run_in(project, *PLAIN, "--gradbot")
    return done.stdout, read(project)


def read(project: Path) -> Report:
    return codec.loads((project / ".gradbot" / "report.json").read_bytes(), Report)


def by_test(report: Report) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for result in report.results:
        found.setdefault(result.case.test_id.rpartition("::")[2], []).append(result.outcome)
    return found


def test_every_test_ends_as_it_does_without(project: Path, ran: tuple[str, Report]) -> None:
    plain = run_in(project, *PLAIN)
    told = [line for line in ran[0].splitlines() if not line.startswith("gradbot:")]
    assert outcomes("\n".join(told)) == outcomes(plain.stdout)


def test_every_call_is_a_case_with_the_id_of_its_test(ran: tuple[str, Report]) -> None:
    assert by_test(ran[1]) == {
        "test_gradcheck": [Outcome.PASSED, Outcome.PASSED],
        "test_that_expects_a_failure": [Outcome.EXPECTED_FAILURE, Outcome.EXPECTED_FAILURE],
        "test_it": [Outcome.PASSED],
        "test_wrong": [Outcome.FAILED],
        "test_that_fails_for_another_reason": [Outcome.PASSED],
    }
    assert all(result.case.source is InputSource.GRADCHECK_CALL for result in ran[1].results)


def test_a_failure_names_the_function_and_shows_entries(ran: tuple[str, Report]) -> None:
    (wrong,) = [result for result in ran[1].results if result.outcome is Outcome.FAILED]
    assert wrong.case.target == "kernels:Wrong"
    (check,) = wrong.checks
    (finding,) = check.findings
    assert (check.check, finding.kind) == ("backward", "jacobian_mismatch_backward")
    assert finding.evidence is not None
    assert finding.evidence.entries[0].analytical == pytest.approx(2.0)
    assert finding.evidence.entries[0].numerical == pytest.approx(3.0)


def test_functions_are_placed_in_their_source(ran: tuple[str, Report]) -> None:
    targets = {target.id: target for target in ran[1].targets}
    place = targets["kernels:Square"].methods["backward"]
    assert place.path == "kernels/__init__.py"
    assert place.line == 12


def test_second_order_calls_say_which_checks_they_made(ran: tuple[str, Report]) -> None:
    checks = {
        tuple(check.check for check in result.checks) for result in ran[1].results if result.outcome is Outcome.PASSED
    }
    assert ("backward", "undefined_grad") in checks
    assert any("double_backward" in each for each in checks)


def test_the_closing_line_says_what_was_found(ran: tuple[str, Report]) -> None:
    (line,) = [line for line in ran[0].splitlines() if line.startswith("gradbot:")]
    assert "7 gradcheck calls, 4 right, 1 wrong, 2 failed as their tests expect" in line


def test_under_xdist_the_report_is_the_same(project: Path, ran: tuple[str, Report]) -> None:
    run_in(project, *PLAIN, "--gradbot", "-n", "2")
    assert by_test(read(project)) == by_test(ran[1])


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
    done = run_in(project, *PLAIN, "--gradbot")
    assert "no gradcheck call was seen" in done.stdout
    assert not (project / ".gradbot").exists()
