"""Configuration: `[tool.gradbot]`, environment and flags as one frozen `Config`."""

from __future__ import annotations

from gradbot.config.documentation import help_for, markdown_table
from gradbot.config.reading import load, read_target_table
from gradbot.config.values import CommentMode, Config, FailOn, JunitFamily, TargetOptions, TargetTable

__all__ = [
    "CommentMode",
    "Config",
    "FailOn",
    "JunitFamily",
    "TargetOptions",
    "TargetTable",
    "help_for",
    "load",
    "markdown_table",
    "read_target_table",
]
