"""Rules and their explanations for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradbot.explanations import Explanation
from gradbot.report.terminal import printed
from gradbot.rules import Rule


def render_rule(rule: Rule, explanation: Explanation, *, width: int = 80, colour: bool = False) -> str:
    """One rule in full: meaning, usual causes, remedy and the example."""
    parts: list[RenderableType] = [
        Text.assemble((rule.id, "bold"), "  ", rule.kind, ("  " + rule.severity.value, "dim")),
        Text(rule.summary),
        "",
        Text(explanation.meaning),
        "",
        Text("usual causes", style="bold"),
    ]
    for cause in explanation.causes:
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(Text("  -"), Text(cause))
        parts.append(line)
    parts += ["", Text("remedy", style="bold"), Padding(Text(explanation.remedy), (0, 0, 0, 2))]
    for word, code, style in (("wrong", explanation.wrong, "red"), ("right", explanation.right, "green")):
        if code:
            lines = [Text(f"    {line}", no_wrap=True, overflow="ignore") for line in code.strip("\n").split("\n")]
            parts += ["", Text(word, style=f"bold {style}"), *lines]
    return printed(Group(*parts), width, colour)


def render_rules(rules: Sequence[Rule], *, width: int = 80, colour: bool = False) -> str:
    """The catalogue, a rule a line."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for rule in rules:
        table.add_row(Text(rule.id, style="bold"), Text(rule.summary), Text(rule.severity.value, style="dim"))
    return printed(
        Group(table, "", Text("gradbot explain GB101 says more about one of them", style="dim")), width, colour
    )
