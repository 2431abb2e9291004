"""A function against a declared reference, and against itself compiled."""

from __future__ import annotations

import torch
from engine.bent import custom, normal

import gradbot
from gradbot.model import Outcome

SQUARE = custom(lambda x: x * x, lambda g, x: 2 * g * x)
TRIPLE = custom(lambda x: x * x, lambda g, x: 3 * g * x)


def checked(func, name, **options):
    result = gradbot.check(func, (normal(3, 4).requires_grad_(),), checks=[name], **options)
    return next(each for each in result.checks if each.check == name)


def test_a_function_with_its_references_values_and_gradients_passes():
    assert checked(SQUARE, "reference", reference=torch.square).outcome is Outcome.PASSED


def test_another_gradient_than_the_references_fails_at_its_worst_entries():
    result = checked(TRIPLE, "reference", reference=torch.square)
    assert result.outcome is Outcome.FAILED
    (finding,) = result.findings
    assert (finding.rule, finding.details["what"]) == ("GB105", "gradient")
    entry = finding.evidence.entries[0]
    assert abs(entry.analytical - 1.5 * entry.numerical) < 1e-12


def test_another_value_than_the_references_fails():
    result = checked(SQUARE, "reference", reference=lambda x: x * x + 1)
    assert [each.details["what"] for each in result.findings] == ["value"]


def test_another_shape_than_the_references_is_said():
    result = checked(SQUARE, "reference", reference=lambda x: x[0])
    assert result.outcome is Outcome.FAILED
    assert [(each.details["what"], each.details["shapes"]) for each in result.findings] == [
        ("shape", "(3, 4) and (4,)")
    ]


def test_a_traceable_function_is_the_same_compiled():
    assert checked(lambda x: (x.sin() * x).sum(), "compiled").outcome is Outcome.PASSED


def test_a_function_that_differs_when_traced_fails():
    def differs(x):
        return x.sin() if torch.compiler.is_compiling() else x.cos()

    result = checked(differs, "compiled")
    assert result.outcome is Outcome.FAILED
    assert result.findings[0].rule == "GB805"


def test_a_function_that_cannot_be_traced_in_one_graph_is_unsupported():
    def breaks(x):
        torch._dynamo.graph_break()
        return x.sin()

    result = checked(breaks, "compiled")
    assert (result.outcome, result.reason) == (Outcome.UNSUPPORTED, "not_compilable")


def test_compiling_is_off_unless_asked_for():
    result = gradbot.check(torch.sin, (normal(3),))
    assert "compiled" not in [each.check for each in result.checks]
