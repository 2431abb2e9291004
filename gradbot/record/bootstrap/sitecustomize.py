"""Put on PYTHONPATH by `gradbot record`: starts recording in every Python process of the run, once torch is imported.

Importing torch here would slow every process of the run, so recording starts when the process imports it itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


class _StartingLoader(importlib.abc.Loader):
    """Loads torch as its own loader does, then starts recording."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        _start()


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch once, for `_StartingLoader`, and is gone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            spec.loader = _StartingLoader(spec.loader)
        return spec


def _start() -> None:
    home = os.environ.get("GRADBOT_RECORD_HOME", "")
    if home and home not in sys.path:
        sys.path.append(home)
    try:
        from gradbot.record.session import start, wish_from

        wish = wish_from(os.environ)
        if wish is not None:
            start(wish)
    except Exception as error:  # noqa: BLE001  the run must go on without us
        sys.stderr.write(f"gradbot: recording did not start: {type(error).__name__}: {error}\n")


def _run_the_next_sitecustomize() -> None:
    """Ours hides the one that the environment may have; run that too."""
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if os.environ.get("GRADBOT_RECORD"):
    sys.meta_path.insert(0, _AfterTorch())
_run_the_next_sitecustomize()
