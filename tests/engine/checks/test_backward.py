"""backward: a right rule passes, wrong ones are found with their place, errors of user code are told as such."""

from __future__ import annotations

import pytest
import torch
from engine.checks.wrong import assert_fails, assert_passes, kinds, real, result_of, rule, run

from gradbot.engine.api import check
from gradbot.model import Capability, Outcome

PRODUCT = rule(torch.mul, lambda ctx, x, y, g: (g * y, g * x))


def test_a_right_rule_passes() -> None:
    assert_passes(run("backward", PRODUCT.apply, real(3), real(3, seed=1)))


def test_every_wrong_pair_is_found_not_the_first_only() -> None:
    swapped = rule(
        lambda x, y: (x * y, x + y),
        lambda ctx, x, y, g, h: (2 * g * y + h, g * x + 3 * h),
    )
    result = run("backward", swapped.apply, real(3), real(3, seed=1))
    assert [(each.output, each.input) for each in result.findings] == [(0, 0), (1, 1)]
    assert result.capability is Capability.WRONG


def test_a_finding_names_places_and_shows_entries() -> None:
    wrong = rule(torch.mul, lambda ctx, x, y, g: (g * y, 2 * g * x))
    (finding,) = run("backward", wrong.apply, real(3), real(3, seed=1)).findings
    assert finding.input == 1
    assert finding.location is not None
    assert finding.location.path == __file__ or finding.location.path.endswith("wrong.py")
    assert finding.evidence is not None
    assert finding.evidence.wrong_entries == 3
    entry = finding.evidence.entries[0]
    assert entry.analytical == pytest.approx(2 * entry.numerical, rel=1e-5)


def test_none_for_an_input_that_matters_is_wrong() -> None:
    assert_fails(
        run("backward", rule(torch.div, lambda ctx, x, y, g: (g / y, None)).apply, real(2), real(2, seed=1)),
        "jacobian_mismatch_backward",
    )


def test_isrlu_that_omits_grad_output_is_wrong() -> None:
    wrong = rule(lambda x: x / (1 + x * x).sqrt(), lambda ctx, x, g: (1 + x * x) ** -1.5 * (0.5 + 0 * g))
    assert run("backward", wrong.apply, real(4)).outcome is Outcome.FAILED


@pytest.mark.parametrize("factor", [1.0009, 0.9995])
def test_a_small_error_within_the_tolerances_is_shown_and_no_failure(factor: float) -> None:
    result = run("backward", rule(torch.sin, lambda ctx, x, g: factor * g * x.cos()).apply, real(4))
    assert (result.outcome, kinds(result)) == (Outcome.PASSED, ["small_mismatch"])
    assert result.findings[0].details["relative_error"] == pytest.approx(abs(factor - 1), rel=1e-2)


def test_a_tiny_function_without_gradient_is_shown() -> None:
    silent = rule(lambda x: 1e-7 * x.sin(), lambda ctx, x, g: torch.zeros_like(g))
    assert kinds(run("backward", silent.apply, real(3))) == ["small_mismatch"]


def test_a_curved_function_is_no_small_error() -> None:
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    assert_passes(run("backward", lambda t: t * t.abs(), x))


def test_a_kink_is_inconclusive() -> None:
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    result = run("backward", torch.relu, x)
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "kink")
    assert kinds(result) == ["nondifferentiable_point"]


def test_a_jump_is_inconclusive() -> None:
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    result = run("backward", lambda t: t + torch.sign(t).detach(), x)
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "jump")


def test_complex_square_without_conj_is_wrong() -> None:
    z = torch.complex(real(3), real(3, seed=1)).detach().requires_grad_()
    assert_fails(
        run("backward", rule(torch.square, lambda ctx, z, g: 2 * g * z).apply, z), "jacobian_mismatch_backward"
    )
    assert_passes(run("backward", rule(torch.square, lambda ctx, z, g: 2 * g * z.conj()).apply, z))


@pytest.mark.parametrize(
    "func", [lambda z: z.abs(), lambda z: (z * z.conj()).real.sum(), torch.view_as_real, torch.exp, lambda z: z.imag]
)
def test_complex_to_real_and_complex_passes(func: object) -> None:
    z = torch.complex(real(3), real(3, seed=1)).detach().requires_grad_()
    assert_passes(run("backward", func, z))


def test_real_to_complex_passes() -> None:
    assert_passes(run("backward", lambda x: torch.polar(x, 2 * x), real(3)))


def test_no_backward_is_a_missing_capability() -> None:
    only_forward = type("F", (torch.autograd.Function,), {"forward": staticmethod(lambda ctx, x: 2 * x)})
    result = run("backward", only_forward.apply, real(2))
    assert (result.outcome, result.reason) == (Outcome.UNSUPPORTED, "no_backward")


def test_a_missing_capability_that_is_required_fails() -> None:
    only_forward = type("F", (torch.autograd.Function,), {"forward": staticmethod(lambda ctx, x: 2 * x)})
    assert_fails(run("backward", only_forward.apply, real(2), require=["backward"]), "required_check_unsupported")


def test_a_backward_that_raises_is_an_error_of_user_code() -> None:
    def refuse(ctx: object, x: object, g: object) -> None:
        raise ValueError("refused")

    case = check(rule(torch.sin, refuse).apply, (real(2),))
    result = result_of(case, "backward")
    assert (result.outcome, kinds(result)) == (Outcome.ERRORED, ["user_error_in_backward"])
    assert result.details["message"] == "ValueError: refused"
    assert case.outcome is Outcome.ERRORED
    # the same error is not told once more by every check that needs a backward
    assert result_of(case, "double_backward").reason == "backward_raises"


@pytest.mark.parametrize(
    ("returned", "kind"),
    [
        (lambda ctx, x, y, g: g * y, "wrong_grad_count"),
        (lambda ctx, x, y, g: (g.new_ones(7), g * x), "wrong_grad_size"),
    ],
)
def test_what_autograd_itself_refuses_is_a_broken_contract(returned: object, kind: str) -> None:
    assert_fails(run("backward", rule(torch.mul, returned).apply, real(3), real(3, seed=1)), kind)


def test_a_forward_that_raises_ends_the_case_with_its_stage() -> None:
    def refuse(x: object) -> None:
        raise ValueError("no such shape\nsecond line")

    case = check(refuse, (real(2),))
    assert case.outcome is Outcome.ERRORED
    assert case.details == {"stage": "forward", "message": "ValueError: no such shape"}


def test_outputs_that_hang_on_nothing_but_vary_are_wrong() -> None:
    assert_fails(run("backward", lambda x: x.detach() ** 2, real(3)), "no_diff_outputs_nonzero")


@pytest.mark.parametrize("func", [lambda x: x.argmax(), lambda x: (x > 0.5).double(), lambda x: torch.ones(2)])
def test_outputs_that_cannot_vary_are_unsupported(func: object) -> None:
    result = run("backward", func, real(3))
    assert (result.outcome, result.reason) == (Outcome.UNSUPPORTED, "no_differentiable_output")


def test_other_outputs_near_the_inputs_are_found() -> None:
    x = torch.ones((), dtype=torch.float64, requires_grad=True)
    assert_fails(run("backward", lambda t: [t, 2 * t] if t > 1 else [t], x), "output_depends_on_perturbation")


def test_arguments_without_numbers_are_skipped_with_the_reason() -> None:
    case = check(lambda n: n, (3,))
    assert (case.outcome, case.reason) == (Outcome.SKIPPED, "no_differentiable_input")
