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
    places, targets = [], []
    for word in words:
        if _OP.match(word):
            targets.append(word.removesuffix(".default"))
        elif _FUNCTION.match(word) and not os.path.exists(word):
            targets.append(word)
            module = word.partition(":")[0]
            places.append(module.rpartition(".")[0] or module)
        else:
            places.append(word)
    return Wanted(places=tuple(dict.fromkeys(places)) or config.packages or (".",), targets=tuple(targets))


def shown_path(path: Path) -> str:
    """A path as people type it: relative to the working directory where it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
