"""From what a user names (packages, folders, files) to the source files there and the module name of each.

Module names follow from import roots: the folder that has to be on `sys.path`. For a package it is the folder above
the topmost `__init__.py`; a `src` folder is one; a project's own folder is one.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gradbot.discover.static.locate import Locator, top_level_names
from gradbot.errors import UsageError

# What setuptools' flat-layout discovery leaves out: folders that are beside a package, not in it.
_NOT_PACKAGES = (
    "ci bin debian doc docs documentation manpages news newsfragments changelog test tests unit_test unit_tests "
    "example examples scripts tools util utils python build benchmark benchmarks exercise exercises htmlcov tasks "
    "dist node_modules venv env third_party vendor"
)
NOT_PACKAGES = frozenset(_NOT_PACKAGES.split())
_NEVER = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "htmlcov"})
_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
_NOT_MODULES = frozenset({"setup.py", "conftest.py", "noxfile.py", "fabfile.py", "tasks.py"})
CPP_SUFFIXES = frozenset({".cpp", ".cc", ".cxx", ".cu", ".mm", ".hip"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A Python file, its module name and the folder that must be on `sys.path` to import it by that name."""

    path: Path
    module: str
    is_package: bool
    import_root: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Everything that was named: Python files in import order (packages before what is in them), C++ files, notes."""

    files: tuple[SourceFile, ...] = ()
    cpp_files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def find_places(names_or_paths: Iterable[str], root: Path, locate: Locator) -> Places:
    """The sources of packages, folders and files.

    Raises `UsageError` for a name that is neither a path nor a package that can be located.
    """
    files: dict[Path, SourceFile] = {}
    cpp: dict[Path, None] = {}
    notes: list[str] = []
    for name in names_or_paths:
        before = len(files), len(cpp)
        for each in _files_of(name, root, locate):
            if isinstance(each, SourceFile):
                files.setdefault(each.path, each)
            else:
                cpp.setdefault(each)
        if (len(files), len(cpp)) == before and not files:
            notes.append(f"{name}: no Python sources there")
    return Places(files=tuple(files.values()), cpp_files=tuple(cpp), notes=tuple(notes))


def _files_of(name: str, root: Path, locate: Locator) -> Iterator[SourceFile | Path]:
    path = Path(name) if Path(name).is_absolute() else root / name
    if path.is_file():
        if path.suffix in CPP_SUFFIXES:
            yield path.resolve()
        elif path.suffix == ".py":
            yield _source_file(path.resolve(), import_root(path.resolve(), root.resolve()))
        else:
            raise UsageError(f"{name} is neither a Python nor a C++ source file")
    elif path.is_dir():
        yield from _in_folder(path.resolve(), root.resolve())
    else:
        yield from _in_package(name, locate)


def _in_folder(folder: Path, root: Path) -> Iterator[SourceFile | Path]:
    if (folder / "__init__.py").is_file() or not _is_project(folder):
        yield from _walk(folder, import_root(folder, root))
        return
    parts = list(_packages_of_project(folder))
    for part, base in parts:
        yield from _walk(part, base) if part.is_dir() else [_source_file(part, base)]
    walked = [part for part, _ in parts if part.is_dir()]
    for each in _cpp_files(folder):
        if not any(each.is_relative_to(part) for part in walked):
            yield each


def _is_project(folder: Path) -> bool:
    return any((folder / each).is_file() for each in _PROJECT_FILES)


def _packages_of_project(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Packages and modules of a project folder, each with its import root; `src` layouts before flat ones."""
    src = folder / "src"
    if src.is_dir() and not (src / "__init__.py").is_file():
        for each in sorted(src.iterdir()):
            if _holds_python(each) or _is_module(each):
                yield each, src
    beside = (each for each in sorted(folder.iterdir()) if each.name not in NOT_PACKAGES and each != src)
    children = [each for each in beside if not _is_left_out(each)]
    packages = [each for each in children if (each / "__init__.py").is_file()]
    namespaces = [each for each in children if each not in packages and _holds_packages(each)]
    yield from ((each, folder) for each in (*packages, *namespaces))
    if not packages and not src.is_dir():
        yield from ((each, folder) for each in children if _is_module(each))


def _is_module(path: Path) -> bool:
    return path.suffix == ".py" and path.is_file() and path.name not in _NOT_MODULES


def _holds_python(folder: Path) -> bool:
    return folder.is_dir() and folder.name.isidentifier() and next(_python_files(folder), None) is not None


def _holds_packages(folder: Path) -> bool:
    """A namespace package: no `__init__.py`, but packages or modules in it, and a name that can be imported."""
    return _holds_python(folder) and not _is_project(folder)


def _in_package(name: str, locate: Locator) -> Iterator[SourceFile | Path]:
    if not all(part.isidentifier() for part in name.split(".")) or not locate(name.partition(".")[0]):
        tops = top_level_names(name)
        if not tops:
            raise UsageError(
                f"no package, folder or file {name!r}: install the package, or give the path of its sources"
            )
        for top in tops:
            yield from _in_package(top, locate)
        return
    top, _, rest = name.partition(".")
    found = False
    for place in locate(top):
        if not rest:
            found = True
            yield from _walk(place, place.parent) if place.is_dir() else [_source_file(place, place.parent)]
            continue
        inner = place.joinpath(*rest.split("."))
        if inner.is_dir():
            found = True
            yield from _walk(inner, place.parent)
        elif inner.with_name(inner.name + ".py").is_file():
            found = True
            yield _source_file(inner.with_name(inner.name + ".py"), place.parent)
    if not found:
        raise UsageError(f"no module {name!r} in the package {top!r}")


def import_root(path: Path, root: Path) -> Path:
    """The folder that has to be on `sys.path` for a file or folder to be imported.

    Above the topmost `__init__.py`; else the nearest `src` folder or `root`, where `path` lies in one as a namespace
    package; else the folder itself.
    """
    folder = path if path.is_dir() else path.parent
    if (folder / "__init__.py").is_file():
        while (folder / "__init__.py").is_file() and folder.parent != folder:
            folder = folder.parent
        return folder
    if _imports_siblings(folder):
        return folder
    for above in (folder, *folder.parents):
        if above == root or (above.name == "src" and above != path):
            inner = folder.relative_to(above).parts
            return above if all(part.isidentifier() for part in inner) else folder
    return folder


def _imports_siblings(folder: Path) -> bool:
    """Whether a file imports another one of the same folder by its bare name: scripts, not a namespace package."""
    names = {each.stem for each in folder.glob("*.py")}
    for each in folder.glob("*.py"):
        try:
            tree = ast.parse(each.read_bytes())
        except (SyntaxError, ValueError, OSError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and any(alias.name in names for alias in node.names):
                return True
            if isinstance(node, ast.ImportFrom) and not node.level and node.module in names:
                return True
    return False


def _walk(folder: Path, base: Path) -> Iterator[SourceFile | Path]:
    for path in _python_files(folder):
        if path.name not in _NOT_MODULES or (path.parent / "__init__.py").is_file():
            yield _source_file(path, base)
    yield from _cpp_files(folder)


def _source_file(path: Path, base: Path) -> SourceFile:
    parts = list(path.relative_to(base).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    if is_package:
        parts.pop()
    return SourceFile(path=path, module=".".join(parts) or path.parent.name, is_package=is_package, import_root=base)


def _python_files(folder: Path) -> Iterator[Path]:
    yield from (path for path in files_below(folder) if path.suffix == ".py")


def _cpp_files(folder: Path) -> Iterator[Path]:
    yield from (path for path in files_below(folder) if path.suffix in CPP_SUFFIXES)


def files_below(folder: Path) -> Iterator[Path]:
    """Files in a folder, sorted, a folder's `__init__.py` first; not in hidden folders, environments, build output."""
    for where, folders, names in os.walk(folder):
        here = Path(where)
        folders[:] = sorted(each for each in folders if not _is_left_out(here / each))
        for name in sorted(names, key=lambda each: (each != "__init__.py", each)):
            yield here / name


def _is_left_out(folder: Path) -> bool:
    name = folder.name
    made = name in _NEVER or name.startswith(".") or name.endswith((".egg-info", ".dist-info"))
    return made or (folder / "pyvenv.cfg").is_file()
