"""The exact tensors of all recordings in one file, put together from those that a run has left one by one.

Torch is imported only where NumPy lacks a dtype, for that takes longer than all else that joins recordings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def write_tensors(path: Path, names: set[str], folders: Sequence[Path]) -> None:
    """Bring the file of exact tensors to hold those with these names, new ones from files of their own in `folders`.

    A file that holds just these already is left alone.
    """
    if not names:
        path.unlink(missing_ok=True)
        return
    places = {name: path for name in _keys(path) if name in names}
    for name in sorted(names - places.keys()):
        singles = [folder / f"{name}.safetensors" for folder in folders]
        places |= [(name, single) for single in singles if single.exists()][:1]
    if all(place == path for place in places.values()) and places.keys() == _keys(path):
        return
    read, save = _with_numpy() if all(map(_fits_numpy, set(places.values()))) else _with_torch()
    save({name: read(place, name if place == path else "tensor") for name, place in sorted(places.items())}, path)


def _keys(path: Path) -> set[str]:
    from safetensors import safe_open

    if not path.exists():
        return set()
    with safe_open(path, "np") as file:
        return set(file.keys())


def _fits_numpy(path: Path) -> bool:
    """Whether NumPy has the dtypes of all tensors in a file."""
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        return all(file.get_slice(name).get_dtype() in _NUMPY_DTYPES for name in file.keys())  # noqa: SIM118


_NUMPY_DTYPES = frozenset(["BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "F32", "F64"])


def _with_numpy() -> tuple[Callable[[Path, str], Any], Callable[[Any, Path], None]]:
    """Reading and writing without torch, whose import takes longer than all else that joins recordings."""
    from safetensors.numpy import save_file

    return functools.partial(_read, framework="np"), save_file


def _with_torch() -> tuple[Callable[[Path, str], Any], Callable[[Any, Path], None]]:
    from safetensors.torch import save_file

    return functools.partial(_read, framework="pt"), save_file


def _read(path: Path, name: str, *, framework: str) -> Any:
    from safetensors import safe_open

    with safe_open(path, framework) as file:
        return file.get_tensor(name)
