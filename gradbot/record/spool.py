"""Writes what is seen in one process into a folder of its own, at once: a process that dies later loses nothing.

Every line of `calls.jsonl` is one call. Tensors that are too large for the text lie beside it, one file each, named
by the hash of their content.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from gradbot.record.signature import called, plain_part, quick_key, size, wants_grad
from gradbot.record.tensors import Attached, NotPortableError, is_degenerate
from gradbot.record.values import encode_value, seeds

Json = Any

SEEN_PER_TARGET = 64
"""Distinct signatures kept of one target; what is committed in the end is far less."""

SHAPES_PER_KIND = 6
"""Distinct shapes kept of calls that differ in nothing else."""

MAX_ELEMENTS = 1 << 22

TRIES = 8
"""How many calls of one signature are looked at for one whose inputs are not degenerate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which Functions and ops are of interest: packages by name, and ops by namespace; empty means all but torch's."""

    packages: Collection[str] = ()
    namespaces: Collection[str] = ()

    def has_module(self, module: str) -> bool:
        """Whether Functions defined in `module` are of interest."""
        if not self.packages:
            return module.split(".", maxsplit=1)[0] not in ("torch", "gradbot", "functorch")
        return any(module == package or module.startswith(f"{package}.") for package in self.packages)

    def has_op(self, name: str) -> bool:
        """Whether the op `ns::name` is of interest."""
        return not self.namespaces or name.split("::", maxsplit=1)[0] in self.namespaces


InPlace = Callable[[str, "type | None", tuple[Any, ...], dict[str, Any]], None]
"""Checks a call on its own objects: target, Function class, args and kwargs."""


@dataclass(slots=True)
class Spool:
    """A `watch.Listener` that writes to `folder`. One lock guards it: calls come from every thread."""

    folder: Path
    scope: Scope
    test_id: Callable[[], str]
    in_place: InPlace | None = None
    _targets: dict[type, str] = field(default_factory=dict)
    _quick: set[tuple[str, Any]] = field(default_factory=set)
    _seen: set[tuple[str, Any]] = field(default_factory=set)
    _degenerate: Counter[tuple[str, Any]] = field(default_factory=Counter)
    _kinds: Counter[tuple[str, Any]] = field(default_factory=Counter)
    _per_target: Counter[str] = field(default_factory=Counter)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _process: int = 0
    _own: Path = field(default_factory=Path)

    def function_called(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the call if nothing like it was kept before."""
        target = self._target(cls)
        if target:
            self._called(target, cls, args, kwargs)

    def op_called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the call if nothing like it was kept before."""
        if self.scope.has_op(name):
            self._called(name.removesuffix(".default"), None, args, kwargs)

    def function_raised(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Withdraw the call: a test of what is refused is no sample."""
        target = self._target(cls)
        if target:
            self._withdrawn(target, args, kwargs)

    def op_raised(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Withdraw the call."""
        if self.scope.has_op(name):
            self._withdrawn(name.removesuffix(".default"), args, kwargs)

    def _target(self, cls: type) -> str:
        """The id of a Function of interest; empty for others."""
        found = self._targets.get(cls)
        if found is None:
            found = f"{cls.__module__}:{cls.__qualname__}" if self.scope.has_module(cls.__module__) else ""
            if "<locals>" not in cls.__qualname__:  # such a class must not be kept alive
                self._targets[cls] = found
        return found

    def _called(self, target: str, cls: type | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            if self._per_target[target] >= SEEN_PER_TARGET:
                return
            quick = (target, quick_key(args, kwargs))
            if quick in self._quick:
                return
            with self._lock:
                parts = called(args, kwargs)
                key = (target, parts)
                if key not in self._seen:
                    self._seen.add(key)
                    self._consider(target, cls, parts, args, kwargs)
                elif self._degenerate[key] and not _degenerate(args, kwargs):
                    self._degenerate[key] = 0
                    self._keep(target, parts, args, kwargs)
                else:
                    self._degenerate[key] -= 1
                if self._degenerate[key] <= 0:
                    self._quick.add(quick)
        except Exception as error:  # noqa: BLE001  recording must never change what the suite does
            with suppress(Exception):
                self._write({"target": target, "problem": f"{type(error).__name__}: {error}"[:300]})

    def _withdrawn(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with suppress(Exception), self._lock:
            parts = called(args, kwargs)
            if (target, parts) in self._seen:
                # the same signature may do with other values
                self._quick.discard((target, quick_key(args, kwargs)))
                self._seen.discard((target, parts))
                self._kinds[target, plain_part(parts)] -= 1
                self._per_target[target] -= 1
                self._write({"target": target, "signature": repr(parts), "raised": True})

    def _consider(
        self, target: str, cls: type | None, parts: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        kind = (target, plain_part(parts))
        if self._kinds[kind] >= SHAPES_PER_KIND or self._per_target[target] >= SEEN_PER_TARGET:
            return
        self._kinds[kind] += 1
        self._per_target[target] += 1
        if _degenerate(args, kwargs):
            self._degenerate[target, parts] = TRIES
        self._keep(target, parts, args, kwargs)
        if self.in_place is not None:
            self.in_place(target, cls, args, kwargs)

    def _keep(self, target: str, parts: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        reason = "" if size(parts) <= MAX_ELEMENTS else f"more than {MAX_ELEMENTS} elements"
        if "<locals>" in target:
            reason = "a class that a function makes, which importing does not give back"
        entry: dict[str, Json] = {
            "target": target,
            "signature": repr(parts),
            "kind": repr(plain_part(parts)),
            "size": size(parts),
            "requires_grad": wants_grad(parts),
            "test": self.test_id(),
        }
        if self._degenerate[target, parts] > 0:
            entry["degenerate"] = True
        if not reason:
            reason = self._encode(entry, args, kwargs)
        if reason:
            entry["not_portable"] = reason
        self._write(entry)

    def _encode(self, entry: dict[str, Json], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        attached = Attached()
        seed = seeds(f"{entry['target']}{entry['signature']}")
        try:
            with torch.no_grad():
                entry["args"] = [encode_value(value, attached, seed) for value in args]
                entry["kwargs"] = {name: encode_value(value, attached, seed) for name, value in kwargs.items()}
        except NotPortableError as error:
            entry.pop("args", None)
            return str(error)
        for name, tensor in attached.tensors.items():
            _save_tensor(self._directory() / f"{name}.safetensors", tensor)
        return ""

    def _write(self, entry: dict[str, Json]) -> None:
        with open(self._directory() / "calls.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def _directory(self) -> Path:
        """A folder for this process; a forked child gets its own."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._own = self.folder / f"{self._process}-{uuid.uuid4().hex[:8]}"
            self._own.mkdir(parents=True, exist_ok=True)
        return self._own


def _degenerate(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(is_degenerate(each) for each in tree_leaves((args, kwargs)) if _checked(each))


def _checked(value: object) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.requires_grad  # type: ignore[attr-defined]


def _save_tensor(path: Path, tensor: torch.Tensor) -> None:
    from safetensors.torch import save_file

    if not path.exists():
        save_file({"tensor": tensor}, path)
