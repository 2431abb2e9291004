"""Scans packages, folders and files: every Function and op that their sources make, and the cases declared for them."""

from __future__ import annotations

import ast
import contextlib
import gc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gradbot.discover.static.classes import function_targets
from gradbot.discover.static.cpp import cpp_registrations
from gradbot.discover.static.declarations import declarations, may_declare, mentions, named_files, searched_files
from gradbot.discover.static.interpreter import ask
from gradbot.discover.static.locate import ModuleSource, locator
from gradbot.discover.static.names import Resolver
from gradbot.discover.static.ops import Registration, op_targets
from gradbot.discover.static.places import Places, SourceFile, find_places, import_root
from gradbot.discover.static.registrations import registrations
from gradbot.discover.static.syntax import ParsedModule, parse
from gradbot.model import Discovery, ImportProblem, Location, SourceModule, Target

_OPAQUE = ("torch.autograd", "torch.nn", "torch.library", "torch.ops", "torch.distributed", "numpy", "scipy")


def scan(
    names_or_paths: Iterable[str],
    *,
    root: Path,
    case_files: Sequence[str] = (),
    search_cases: bool = True,
    python: str = "",
    third_party: bool = False,
) -> Discovery:
    """Everything that the sources of packages, folders and files say.

    `root` is the project's folder: relative paths start there, places in it are shown relative to it, and declared
    cases are looked for in it (in the files that `case_files` names, and, if `search_cases`, everywhere below).
    `python` is the interpreter that has the installed packages, this one if "". `third_party`: what other packages
    register when these are imported is wanted too. Raises `UsageError` for a name that leads nowhere.
    """
    with _no_collections():
        return _scan(list(names_or_paths), root.resolve(), case_files, search_cases, python, third_party)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Syntax trees are millions of objects, all in use: looking for garbage among them takes as long as parsing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _scan(
    names: list[str], root: Path, case_files: Sequence[str], search_cases: bool, python: str, third_party: bool
) -> Discovery:
    interpreter = (
        ask(python, [each.partition(".")[0] for each in names if not (root / each).exists()]) if python else None
    )
    locate = locator([root / "src", root], interpreter)
    places = find_places(names, root, locate)
    sources = {
        each.module: ModuleSource(name=each.module, path=each.path, is_package=each.is_package) for each in places.files
    }
    resolver = Resolver(sources, locate, opaque=_OPAQUE)
    shown = _Shown(root)
    modules, problems = _parse_all(places, resolver, shown)
    targets = _targets(modules, places, resolver, shown)
    declared, files = _declared(places, targets, root, case_files, search_cases, resolver, shown)
    return Discovery(
        targets=targets,
        problems=problems,
        case_files=files,
        notes=(*places.notes, *_unmatched(case_files, root)),
        modules=_modules(places.files, targets),
        declared=declared,
        third_party=third_party,
    )


class _Shown:
    """Paths and places as they are shown: POSIX, relative to the project where they lie in it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, path: Path) -> str:
        return (path.relative_to(self._root) if path.is_relative_to(self._root) else path).as_posix()

    def location(self, path: Path, node: ast.AST, symbol: str) -> Location:
        line: int = getattr(node, "lineno", 1)
        return Location(path=self.path(path), line=line, end_line=getattr(node, "end_lineno", None), symbol=symbol)


def _parse_all(
    places: Places, resolver: Resolver, shown: _Shown
) -> tuple[list[ParsedModule], tuple[ImportProblem, ...]]:
    modules, problems = [], []
    for each in places.files:
        try:
            module = parse(each.path, each.module, is_package=each.is_package)
        except (SyntaxError, OSError) as error:
            problems.append(ImportProblem(module=each.module, path=shown.path(each.path), reason=_one_line(error)))
            continue
        resolver.add(module)
        modules.append(module)
    return modules, tuple(problems)


def _one_line(error: SyntaxError | OSError) -> str:
    if isinstance(error, SyntaxError):
        place = f" (line {error.lineno})" if error.lineno else ""
        return f"SyntaxError: {error.msg}{place}"
    return f"cannot be read: {error.strerror}"


def _targets(modules: list[ParsedModule], places: Places, resolver: Resolver, shown: _Shown) -> tuple[Target, ...]:
    functions: dict[str, Target] = {}
    found: dict[str, list[Registration]] = {}
    for module in modules:
        package = module.name.partition(".")[0]
        for target in function_targets(module, package, resolver, shown.location):
            functions.setdefault(target.id, target)
        found.setdefault(package, []).extend(registrations(module, resolver, shown.location))
    home = places.files[0].module.partition(".")[0] if places.files else ""
    for path in places.cpp_files:
        found.setdefault(home, []).extend(cpp_registrations(path, shown.path(path)))
    ops = {target.id: target for package, each in found.items() for target in op_targets(each, package)}
    return (*functions.values(), *ops.values())


def _modules(files: Iterable[SourceFile], targets: Iterable[Target]) -> tuple[SourceModule, ...]:
    """What to import: everything but what is meant to be run, and test modules that make no targets."""
    makers = {target.module for target in targets}
    modules = []
    for each in files:
        parts = each.module.split(".")
        is_test = bool({"tests", "test"} & set(parts)) or parts[-1].startswith("test_") or parts[-1] == "conftest"
        if parts[-1] != "__main__" and (each.module in makers or not is_test):
            modules.append(
                SourceModule(
                    name=each.module,
                    path=str(each.path),
                    import_root=str(each.import_root),
                    makes_targets=each.module in makers,
                )
            )
    return tuple(modules)


def _declared(
    places: Places,
    targets: tuple[Target, ...],
    root: Path,
    patterns: Sequence[str],
    search: bool,
    resolver: Resolver,
    shown: _Shown,
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Places of declarations by target, and the files that hold any."""
    in_packages = [each.path for each in places.files if may_declare(each.path)]
    modules = {each.path: each.module for each in places.files}
    named = list(dict.fromkeys(named_files(root, patterns)))
    # Of the project's other files those count that mention what was asked for; where only packages from elsewhere are
    # scanned, those that declare something for these.
    asked = _outermost({each.module for each in places.files})
    inside = any(each.path.is_relative_to(root) and "site-packages" not in each.path.parts for each in places.files)
    around = {each.import_root / each.module.partition(".")[0] for each in places.files} if search else ()
    searched = [path for folder in (*sorted(around), *([root] if search else [])) for path in searched_files(folder)]
    declared: dict[str, tuple[str, ...]] = {}
    files: dict[str, None] = dict.fromkeys(shown.path(each) for each in named)
    for path in dict.fromkeys([*named, *in_packages, *searched]):
        name = modules.get(path) or _module_name(path, root)
        try:
            module = resolver.module(name) if path in modules else parse(path, name, is_package=False)
        except (SyntaxError, OSError):
            files[shown.path(path)] = None  # importing it will say what is wrong with it
            continue
        made = list(declarations(module, resolver)) if module is not None else []
        ours = path in modules or path in named or (inside and path.is_relative_to(root) and mentions(path, asked))
        known = any(_concerns(each.target, places, targets) for each in made)
        # what only running a file would tell is no reason to run one from elsewhere, or a test, that mentions none
        said = inside and any(not each.target and each.at_import for each in made)
        unknown = said or (any(not each.target for each in made) and mentions(path, asked))
        if not (ours or known or unknown):
            continue
        for each in made:
            files[shown.path(path)] = None
            if each.target:
                declared[each.target] = (*declared.get(each.target, ()), f"{shown.path(path)}:{each.line}")
    return declared, tuple(files)


def _outermost(modules: set[str]) -> frozenset[str]:
    """The names without those of modules inside of others: `kernels`, not `kernels.softcap`."""
    return frozenset(each for each in modules if each.rpartition(".")[0] not in modules)


def _unmatched(patterns: Sequence[str], root: Path) -> list[str]:
    """Notes on patterns of files of cases that match nothing: most often a typing error."""
    return [f"cases: {each!r} matches no Python file" for each in patterns if not any(named_files(root, [each]))]


def _concerns(target: str, places: Places, targets: tuple[Target, ...]) -> bool:
    """Whether a declared target is one of what was scanned."""
    modules = {each.module for each in places.files}
    return target.partition(":")[0] in modules or any(each.id == target for each in targets)


def _module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(import_root(path, root)).with_suffix("").parts)
