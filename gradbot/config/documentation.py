"""The documentation of every option, made from the fields themselves: for `--help` and for the README's table."""

from __future__ import annotations

import dataclasses
from enum import Enum

from gradbot.config.values import Config, TargetTable
from gradbot.model import EXPECTATIONS


def help_for(name: str, cls: type = Config) -> str:
    """What an option means, in one line."""
    return _help(next(each for each in dataclasses.fields(cls) if each.name == name))


def markdown_table(cls: type[Config] | type[TargetTable] = Config) -> str:
    """Key, default and meaning of every option as a Markdown table."""
    rows = [f"| `{each.name}` | {_default(each)} | {_help(each)} |" for each in option_fields(cls)]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows]) + "\n"


def option_fields(cls: type) -> tuple[dataclasses.Field[object], ...]:
    """The fields that a file may set."""
    return tuple(each for each in dataclasses.fields(cls) if "help" in each.metadata)


def _help(each: dataclasses.Field[object]) -> str:
    return str(each.metadata["help"]).format(expectations=", ".join(EXPECTATIONS)) if each.metadata else ""


def _default(each: dataclasses.Field[object]) -> str:
    value = each.default.value if isinstance(each.default, Enum) else each.default
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{item}"' for item in value) + "]`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
