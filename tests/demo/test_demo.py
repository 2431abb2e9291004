"""The demo: one command finds every planted fault for what it is, and nothing where nothing was planted."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gradbot import codec
from gradbot.model import CaseResult, Outcome, Report


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Report]:
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "gradbot", "check", "gradbot.demo", "--jobs", "2", "--retries", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    return done, codec.loads((folder / ".gradbot" / "report.json").read_bytes(), Report)


PLANTED = {
    "gradbot.demo.wrong_factor:SoftCap": {("backward", "jacobian_mismatch_backward", "constant_factor")},
    "gradbot.demo.wrong_row:RowScale": {("backward", "jacobian_mismatch_backward", "zero_rows")},
    "gradbot.demo.missing_term:RowSoftmax": {("backward", "jacobian_mismatch_backward", "missing_term")},
    "gradbot.demo.missing_conj:ComplexSquare": {("backward", "jacobian_mismatch_backward", "missing_conj")},
    "gradbot.demo.none_gradient:Temperature": {("backward", "jacobian_mismatch_backward", "none_gradient")},
    "gradbot.demo.wrong_jvp:Sine": {("forward_ad", "jacobian_mismatch_forward", "sign")},
    "gradbot.demo.wrong_shape:Doubled": {("backward", "wrong_grad_size", "")},
    "gradbot.demo.wrong_forward_over_backward:Cubed": {
        ("forward_over_backward", "jacobian_mismatch_forward_over_backward", "constant_factor")
    },
    "gradbot.demo.wrong_vmap_of_jvp:Exponential": {("batched_forward_grad", "batched_forward_grad", "")},
    "gradbot.demo.wrong_vmap:Distance": {("batched_grad", "batched_grad", "")},
    "gradbot.demo.undefined_grad:SinCos": {("undefined_grad", "undefined_grad", "")},
    "gradbot.demo.grad_output_strides:Scale": {("grad_outputs", "grad_output_layout", "grad_output_strides")},
    "gradbot.demo.side_effects:Negate": {("side_effects", "grad_output_mutated", "")},
    "gradbot.demo.frozen_input:Affine": {("needs_input_grad", "needs_input_grad", "")},
    "gradbot.demo.nondeterministic:ScatterMix": {("determinism", "nondeterministic", "")},
    "gradbot_demo::cubed": {("backward", "jacobian_mismatch_backward", "constant_factor")},
    "gradbot_demo::row_sums": {("registration", "registration_fake", "")},
}
"""What each target must be blamed for: check, kind and recognised pattern."""


def result(report: Report, target: str) -> CaseResult:
    (found,) = [each for each in report.results if each.case.target == target]
    return found


def blamed(found: CaseResult) -> set[tuple[str, str, str]]:
    return {
        (check.check, finding.kind, finding.diagnosis.pattern if finding.diagnosis else "")
        for check in found.checks
        if check.outcome in (Outcome.FAILED, Outcome.ERRORED)
        for finding in check.findings
    }


@pytest.mark.parametrize("target", PLANTED)
def test_every_planted_fault_is_found_for_what_it_is(ran: tuple[object, Report], target: str) -> None:
    assert PLANTED[target] <= blamed(result(ran[1], target))


SINGLE = set(PLANTED) - {"gradbot.demo.missing_term:RowSoftmax", "gradbot_demo::row_sums"}
"""Faults that cannot show in another check too."""


@pytest.mark.parametrize("target", sorted(SINGLE))
def test_nothing_else_is_blamed(ran: tuple[object, Report], target: str) -> None:
    assert {check for check, _, _ in blamed(result(ran[1], target))} == {check for check, _, _ in PLANTED[target]}


def test_a_wrong_double_backward_names_what_was_saved(ran: tuple[object, Report]) -> None:
    found = result(ran[1], "gradbot.demo.double_backward:Cube")
    (check,) = [check for check in found.checks if check.outcome is Outcome.FAILED]
    assert check.check == "double_backward"
    assert any("slope" in str(finding) for finding in check.findings)


def test_a_backward_that_clips_is_not_linear(ran: tuple[object, Report]) -> None:
    assert ("grad_outputs", "nonlinear_backward", "") in blamed(
        result(ran[1], "gradbot.demo.nonlinear_backward:Clipped")
    )


def test_a_crash_is_named_and_costs_only_itself(ran: tuple[object, Report]) -> None:
    found = result(ran[1], "gradbot.demo.crash:BadPointer")
    assert found.outcome is Outcome.CRASHED
    assert found.crash is not None
    assert (found.crash.signal, found.crash.stage) == ("SIGSEGV", "backward")


@pytest.mark.parametrize("target", ["gradbot.demo.right:Swish", "gradbot_demo::squared"])
def test_right_targets_pass(ran: tuple[object, Report], target: str) -> None:
    assert result(ran[1], target).outcome is Outcome.PASSED


def test_a_declared_straight_through_is_expected(ran: tuple[object, Report]) -> None:
    assert result(ran[1], "gradbot.demo.straight_through:Round").outcome is Outcome.EXPECTED_FAILURE


def test_a_kink_is_inconclusive_not_wrong(ran: tuple[object, Report]) -> None:
    found = result(ran[1], "gradbot.demo.kink:HardGate")
    assert found.outcome is Outcome.INCONCLUSIVE
    assert not blamed(found)


def test_what_has_no_inputs_is_unchecked(ran: tuple[object, Report]) -> None:
    assert "gradbot.demo.unchecked:TopGate" in {each.target for each in ran[1].unchecked}


def test_the_run_fails_and_says_which_and_why(ran: tuple[subprocess.CompletedProcess[str], Report]) -> None:
    done = ran[0]
    assert done.returncode == 1
    for target in PLANTED:
        assert target.rpartition(":")[2] in done.stdout.replace("\n", "")
    assert "0.5× the true derivative" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
