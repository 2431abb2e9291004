"""Every rule is explained, its code is Python, and its page and `gradbot explain` say the same."""

from __future__ import annotations

import ast
import textwrap

import pytest

from gradbot.explanations import EXPLANATIONS, page
from gradbot.report import terminal_rules
from gradbot.rules import RULES


def test_every_rule_is_explained_and_nothing_else() -> None:
    assert set(EXPLANATIONS) == set(RULES)


@pytest.mark.parametrize("kind", sorted(EXPLANATIONS))
def test_an_explanation_is_whole(kind: str) -> None:
    explanation = EXPLANATIONS[kind]
    assert len(explanation.meaning) > 30
    assert explanation.causes
    assert explanation.remedy.endswith((".", '".'))
    assert not explanation.wrong or explanation.right


@pytest.mark.parametrize("kind", sorted(EXPLANATIONS))
def test_its_code_is_python(kind: str) -> None:
    for code in (EXPLANATIONS[kind].wrong, EXPLANATIONS[kind].right):
        ast.parse("def example():\n    pass\n" + textwrap.indent(code.strip("\n"), "    "))


@pytest.mark.parametrize("kind", sorted(EXPLANATIONS))
def test_page_and_terminal_say_the_same(kind: str) -> None:
    rule, explanation = RULES[kind], EXPLANATIONS[kind]
    for text in (page(rule, explanation), terminal_rules.render_rule(rule, explanation, width=80)):
        words = " ".join(text.split())
        assert rule.id in words
        assert " ".join(explanation.meaning.split()) in words
        assert all(" ".join(cause.split()) in words for cause in explanation.causes)
        assert " ".join(explanation.remedy.split()) in words
        assert " ".join(explanation.right.split()) in words
