"""Where the source of a module lies, without importing anything: its top-level package is located, the rest is walked.

Locating a top-level name runs no user code: finders look at `sys.path` (and at the tables of editable installs).
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradbot.discover.static.interpreter import Interpreter

Locator = Callable[[str], tuple[Path, ...]]
"""Top-level import name -> its package folders or its single file; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSource:
    """The file of a module."""

    name: str
    path: Path
    is_package: bool


def locator(first: Sequence[Path], interpreter: Interpreter | None = None) -> Locator:
    """Looks in the folders `first`, then where another interpreter looks; None means this one."""
    own = [str(each) for each in first]

    def locate(name: str) -> tuple[Path, ...]:
        found = _spec_places(name, own)
        if found or interpreter is None:
            return found or _spec_places(name, None)
        return interpreter.places.get(name) or _spec_places(name, list(interpreter.path))

    return locate


def _spec_places(name: str, folders: list[str] | None) -> tuple[Path, ...]:
    try:
        if folders is None:
            spec = importlib.util.find_spec(name)
        else:
            spec = importlib.machinery.PathFinder.find_spec(name, folders) if folders else None
    except (ImportError, ValueError, AttributeError):
        return ()
    if spec is None:
        return ()
    if spec.submodule_search_locations is not None:
        return tuple(path for each in spec.submodule_search_locations if (path := Path(each)).is_dir())
    return (Path(spec.origin),) if spec.origin and Path(spec.origin).is_file() else ()


def top_level_names(distribution: str) -> tuple[str, ...]:
    """Import names of an installed distribution (`pytorch-revgrad` -> `pytorch_revgrad`); empty if not installed."""
    try:
        files = importlib.metadata.distribution(distribution).files or ()
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ()
    names = {
        each.parts[0].removesuffix(".py")
        for each in files
        if each.suffix == ".py" and ".dist-info" not in str(each) and not each.parts[0].startswith(("..", "__"))
    }
    return tuple(sorted(names))


def source_of(module: str, locate: Locator) -> ModuleSource | None:
    """The source file of a module; None for built-in and compiled ones, and where there is no such module."""
    top, _, rest = module.partition(".")
    if top in sys.builtin_module_names:
        return None
    for place in locate(top):
        if not rest:
            return _source_at(place, module)
        if place.is_dir():
            found = _source_at(place.joinpath(*rest.split(".")), module)
            if found is not None:
                return found
    return None


def _source_at(place: Path, module: str) -> ModuleSource | None:
    if place.suffix == ".py" and place.is_file():
        return ModuleSource(name=module, path=place, is_package=False)
    if (place / "__init__.py").is_file():
        return ModuleSource(name=module, path=place / "__init__.py", is_package=True)
    single = place.with_name(place.name + ".py")
    return ModuleSource(name=module, path=single, is_package=False) if single.is_file() else None
