"""`gradbot explain GB101`: what a rule means, its usual causes and the remedy."""

from __future__ import annotations

import difflib
import os
import shutil
import sys

import click

from gradbot.errors import ExitCode, UsageError
from gradbot.explanations import EXPLANATIONS
from gradbot.report import terminal_rules
from gradbot.rules import BY_ID, RULES, Rule, find_rule


@click.command("explain")
@click.argument("rule", required=False)
@click.option("--all", "everything", is_flag=True, help="Explain every rule.")
def command(rule: str | None, everything: bool) -> int:
    """Explain RULE, by id (GB101) or kind; without RULE, list the rules."""
    width = shutil.get_terminal_size((100, 24)).columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    if rule is None and not everything:
        click.echo(terminal_rules.render_rules(tuple(BY_ID.values()), width=width, colour=colour), nl=False)
        return ExitCode.RIGHT
    chosen = tuple(BY_ID.values()) if rule is None else (_find(rule),)
    shown = [terminal_rules.render_rule(each, EXPLANATIONS[each.kind], width=width, colour=colour) for each in chosen]
    click.echo("\n".join(shown), nl=False)
    return ExitCode.RIGHT


def _find(name: str) -> Rule:
    found = find_rule(name)
    if found is None:
        near = difflib.get_close_matches(name.lower(), [*RULES, *map(str.lower, BY_ID)], n=3, cutoff=0.4)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise UsageError(f"no rule {name!r}{hint}; `gradbot explain` lists all")
    return found
