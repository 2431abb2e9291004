"""Runs of pytest in processes of their own that begin with torch imported, which is most of what starting one costs.

They are forked from a server that has imported torch and nothing of gradbot's, so that its plugin is found and loaded
as in any run.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

TESTS = str(Path(__file__).parent.parent)
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["torch", "torch._dynamo"])


def run_pytest(folder: Path, arguments: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Run `python -m pytest ARGUMENTS` in `folder`; returns all that it printed."""
    said = folder / "said.txt"
    process = FORKING.Process(target=_pytest, args=(str(folder), arguments, dict(environment), str(said)))
    process.start()
    process.join()
    return said.read_text(encoding="utf-8", errors="replace")


def _pytest(folder: str, arguments: tuple[str, ...], environment: Mapping[str, str], said: str) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    with open(said, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path[:] = ["", *(each for each in sys.path if each not in ("", TESTS))]
    sys.argv[:] = ["pytest", *arguments]
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)
