"""What the words after `gradbot check` mean: places to look in, and targets to choose."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gradbot.config import Config

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[\w.<>]+\Z")
_OP = re.compile(r"[A-Za-z_]\w*::[\w.]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Packages and paths to discover in, and ids of targets to choose from what is found."""

    places: tuple[str, ...]
    targets: tuple[str, ...]


def wanted(words: Sequence[str], config: Config) -> Wanted:
    """Sort words into places and targets.

    `pkg.mod:Name` is looked for in the package that holds `pkg.mod`; `ns::name` in the places that are given or
    configured, the project otherwise.
    """
    named = named_places(words)
    targets = [word.removesuffix(".default") for word in words if _OP.match(word)]
    targets += [word for word in words if _is_function(word)]
    return Wanted(places=named or config.packages or (".",), targets=tuple(targets))


def named_places(words: Sequence[str]) -> tuple[str, ...]:
    """The packages and paths that words name or that hold the Functions they name; ops name none."""
    places = [_package(word) if _is_function(word) else word for word in words if not _OP.match(word)]
    return tuple(dict.fromkeys(places))


def _is_function(word: str) -> bool:
    return bool(_FUNCTION.match(word)) and not os.path.exists(word)


def _package(function: str) -> str:
    module = function.partition(":")[0]
    return module.rpartition(".")[0] or module


def shown_path(path: Path) -> str:
    """A path as people type it: relative to the working directory where it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
