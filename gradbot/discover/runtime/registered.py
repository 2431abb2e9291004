"""Which of what exists after importing belongs to the packages that were asked for."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gradbot.discover.merge import merge
from gradbot.discover.runtime.functions import aliases, function_id, function_target, live_functions
from gradbot.discover.runtime.imports import import_source
from gradbot.discover.runtime.libraries import is_anothers
from gradbot.discover.runtime.ops import home_file, is_torchs_own, op_names, op_target
from gradbot.model import Discovery, ImportProblem, SourceModule, Target, TargetKind


def discover(
    found: Discovery,
    root: Path,
    *,
    on_import: Callable[[SourceModule], None] = lambda _module: None,
) -> Discovery:
    """Import every module of a static discovery, and complete it by what that registered.

    `on_import` is told of each module before it is imported, so that a crash can be placed.
    """
    before = op_names()
    problems: list[ImportProblem] = []
    for module in found.modules:
        on_import(module)
        problem = import_source(module)
        if problem is not None:
            problems.append(problem)
    targets = registered_targets(found, root, before=before)
    return merge(found, Discovery(targets=targets, problems=tuple(problems)))


def registered_targets(found: Discovery, root: Path, *, before: frozenset[str]) -> tuple[Target, ...]:
    """The Functions and ops of the modules of a discovery that exist in this process now.

    Where the discovery wants those of third parties, these are among them; torch's own never are. `before` are the
    ops that there were before any of the modules was imported.
    """
    root = root.resolve()
    modules = {each.name for each in found.modules}
    packages = {name.partition(".")[0] for name in modules}

    def belongs(module: str) -> bool:
        if found.third_party:
            return module.partition(".")[0] not in ("torch", "gradbot") or module in modules
        return module in modules or (module.partition(".")[0] in packages and module not in sys.modules)

    classes = list(live_functions(belongs))
    functions = [function_target(cls, root) for cls in classes]
    names = aliases({id(cls): function_id(cls) for cls in classes}, belongs)
    ops = _ops(found, root, packages, before)
    return tuple(replace(each, aliases=tuple(names.get(each.id, ()))) for each in (*functions, *ops))


def _ops(found: Discovery, root: Path, packages: set[str], before: frozenset[str]) -> list[Target]:
    files = {each.path for each in found.modules}
    stated = {each.id for each in found.targets if each.kind is TargetKind.OP}
    others = _others(packages)

    def belongs(name: str) -> bool:
        if name in stated or name.removesuffix(".default") in stated or home_file(name) in files:
            return True
        if name in before or is_torchs_own(name):
            return False
        return found.third_party or not (home_file(name).endswith(".py") or others(name.partition("::")[0]))

    targets = (op_target(name, root) for name in sorted(op_names()) if belongs(name))
    return [each for each in targets if each is not None]


def _others(packages: set[str]) -> Callable[[str], bool]:
    """Whether the ops of a namespace, registered by C++ code, are another package's: one named like it, or whose
    compiled library registers them."""
    foreign = {name for name in sys.modules if "." not in name} - packages

    @functools.cache
    def others(namespace: str) -> bool:
        return namespace in foreign or is_anothers(namespace, packages)

    return others
