"""How a worker process is started: with which interpreter, environment and module."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

PACKAGE = str(Path(__file__).resolve().parent.parent)
"""Where this gradbot lies, so that another interpreter's process runs the same one without having it installed."""

TOKEN_VARIABLE = "GRADBOT_WORKER"
"""The environment variable by which everything that a worker started is found again."""

DEVICE_VARIABLE = "GRADBOT_DEVICE"
"""The environment variable that tells a worker for which device it is."""

BOOT = """
import importlib, importlib.util, sys
directory, name, *arguments = sys.argv[1:]
sys.path[:] = [each for each in sys.path if each]
sys.argv[:] = ["gradbot"]
spec = importlib.util.spec_from_file_location(
    "gradbot", directory + "/__init__.py", submodule_search_locations=[directory]
)
sys.modules["gradbot"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
importlib.import_module(name).main(*arguments)
"""
"""Run by `python -c BOOT PACKAGE MODULE ARGUMENT...`: this gradbot under any interpreter, with nothing else added to
its path, and the working directory not on it: a `json.py` that lies there must not become the worker's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a worker is started.

    `env` is the whole environment but for `lane_env`, which differs between devices. `module` has a
    `main(commands, events, token, *arguments)` and, for workers that are forked, a `preload()`. `fork`: workers are
    forked from a process that has imported what they all need; else each starts from nothing.
    """

    python: str
    env: Mapping[str, str]
    cwd: str
    lane_env: Mapping[str, str] = field(default_factory=dict)
    fork: bool = sys.platform == "linux"
    module: str = "gradbot.worker.main"
    arguments: tuple[str, ...] = ()


class Process(Protocol):
    """What is needed of a process: `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...
