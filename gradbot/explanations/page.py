"""One explanation, and the page of a rule made from it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from gradbot.rules import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a rule means in a few sentences, its usual causes, the remedy, and code before and after it.

    `wrong` and `right` are Python, or empty where no code says more than the words.
    """

    meaning: str
    causes: tuple[str, ...]
    remedy: str
    wrong: str = ""
    right: str = ""


def page(rule: Rule, explanation: Explanation) -> str:
    """The rule's page in markdown, as `docs/rules/<id>.md` holds it."""
    counts = {"error": "fails a run", "warning": "is shown as a warning", "note": "is shown as a note"}
    parts = [
        f"# {rule.id}: {rule.kind}",
        f"{rule.summary[:1].upper()}{rule.summary[1:]}. It {counts[rule.severity.value]}.",
        "## What it means",
        _filled(explanation.meaning),
        "## Usual causes",
        "\n".join(f"- {cause}" for cause in explanation.causes),
        "## Remedy",
        _filled(explanation.remedy),
    ]
    if explanation.wrong:
        parts += ["## Example", "Wrong:", f"```python\n{explanation.wrong.strip()}\n```"]
    if explanation.right:
        parts += ["Right:" if explanation.wrong else "## Example", f"```python\n{explanation.right.strip()}\n```"]
    parts += [
        "## If it is meant",
        _filled(
            f'Set `ignore = ["{rule.id}"]` in `[tool.gradbot]` to silence the rule everywhere, or `expect = "failure"` '
            f'with a `reason` and `expect_kinds = ["{rule.id}"]` in `[tool.gradbot.targets."<glob>"]` for some targets.'
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _filled(words: str) -> str:
    return textwrap.fill(words, 110, break_long_words=False, break_on_hyphens=False)
