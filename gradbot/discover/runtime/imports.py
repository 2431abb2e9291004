"""Imports user modules, one by one, and says in one line why one cannot be imported."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from gradbot.errors import ExplainedError
from gradbot.model import ImportProblem, SourceModule

_CAP = 300


class ImportFailedError(ExplainedError):
    """A module could not be imported; the message is the reason in one line."""


def import_source(module: SourceModule) -> ImportProblem | None:
    """Import a module by its name, from its import root. Returns what went wrong, if anything did."""
    try:
        import_by_name(module.name, Path(module.import_root))
    except ImportFailedError as error:
        return ImportProblem(module=module.name, path=module.path, reason=str(error))
    return None


def import_by_name(name: str, root: Path) -> ModuleType:
    """Import a module with `root` first on `sys.path`. Raises `ImportFailedError`."""
    put_on_path(root)
    try:
        return importlib.import_module(name)
    except BaseException as error:
        raise ImportFailedError(one_line(error)) from error


def import_file(path: Path, name: str, root: Path) -> ModuleType:
    """Import a file: by its module name where that leads to it, else from the file itself. Raises `ImportFailedError`.

    A module that is loaded already is not run again: Functions and ops must not be made twice.
    """
    by_path = f"{name}@{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    for loaded in (sys.modules.get(name), sys.modules.get(by_path), *list(sys.modules.values())):
        if loaded is not None and _is_file(loaded, path):
            return loaded
    put_on_path(root)
    return import_by_name(name, root) if _leads_to(name, path) else _import_from(path, by_path)


def _leads_to(name: str, path: Path) -> bool:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    except BaseException as error:  # the package's own code runs when a spec in it is looked for
        raise ImportFailedError(one_line(error)) from error
    return found is not None and bool(found.origin) and Path(str(found.origin)).resolve() == path


def _import_from(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportFailedError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise ImportFailedError(one_line(error)) from error
    return module


def put_on_path(folder: Path) -> None:
    """Make sure that modules in a folder can be imported, before those of the same name elsewhere."""
    text = str(folder)
    if text not in sys.path:
        sys.path.insert(0, text)


def _is_file(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.endswith(path.name) and Path(file).resolve() == path


def one_line(error: BaseException) -> str:
    """Class, message and place of an exception raised by user code, in one line."""
    message = " ".join(str(error).split())
    frames = [each for each in traceback.extract_tb(error.__traceback__) if _is_users(each.filename)]
    place = f" (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return (text if len(text) <= _CAP else text[: _CAP - 3] + "...") + place


_OURS = Path(__file__).resolve().parents[2]


def _is_users(filename: str) -> bool:
    """Whether a file is neither gradbot's own (but for the demo), nor torch's, nor the import system's."""
    path = Path(filename)
    ours = path.is_relative_to(_OURS) and not path.is_relative_to(_OURS / "demo")
    return not (ours or filename.startswith("<") or "/torch/" in path.as_posix() or "importlib" in path.parts)
