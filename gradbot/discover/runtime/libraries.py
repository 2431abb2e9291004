"""Which package a compiled library belongs to, to tell whose an op is that C++ code registered.

The dispatcher keeps the place of a registration as the compiler saw it, which says nothing here. But the library that
registers ops of a namespace holds that name as text.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

_REGISTERS = b"5torch7Library"
"""Part of the names of torch::Library's methods: a library without it registers no ops."""

_SUFFIXES = (".so", ".pyd", ".dylib", ".dll")


def loaded_libraries() -> frozenset[Path]:
    """The extension modules and op libraries that are loaded, but for torch's own."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    paths = {Path(each) for each in (*files, *torch.ops.loaded_libraries) if each and str(each).endswith(_SUFFIXES)}
    own = Path(torch.__file__).parent
    return frozenset(each for each in paths if not each.is_relative_to(own))


def owner(library: Path) -> str:
    """The top-level package that a library lies in; "" for one that lies nowhere on `sys.path`, built on the spot."""
    for folder in sys.path:
        if folder and library.is_relative_to(folder):
            inner = library.relative_to(folder).parts
            if len(inner) > 1:
                return inner[0]
    return ""


def is_anothers(namespace: str, packages: Iterable[str]) -> bool:
    """Whether ops of this namespace come from libraries of other packages only, as far as the libraries tell."""
    owners = {owner(each) for each in loaded_libraries() if _holds(each, namespace)}
    return bool(owners) and not owners & {"", *packages}


def _holds(library: Path, text: str) -> bool:
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(_REGISTERS) >= 0 and content.find(text.encode() + b"\0") >= 0
    except (OSError, ValueError):
        return False
