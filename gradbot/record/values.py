"""Arguments of a call as JSON: tensors, plain Python values, containers, and importable objects by reference."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import math
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import Tensor

from gradbot.record.tensors import Attached, NotPortableError, decode_tensor, encode_tensor

Json = Any

_TORCH_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


def encode_value(value: object, attached: Attached, seed: Callable[[], int]) -> Json:
    """An argument as JSON; `seed()` gives a fresh seed for each random tensor. Raises `NotPortableError`."""
    if value is None or (isinstance(value, str | bool | int) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, Tensor):
        return {"tensor": encode_tensor(value, attached, seed())}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, complex):
        return {"complex": [str(value.real), str(value.imag)]}
    if isinstance(value, _TORCH_CONSTANTS):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, enum.Enum):
        return {"enum": reference_of(type(value)), "name": value.name}
    return _encode_container(value, attached, seed)


def _encode_container(value: object, attached: Attached, seed: Callable[[], int]) -> Json:
    def each(item: object) -> Json:
        return encode_value(item, attached, seed)

    if type(value) is list:
        return [each(item) for item in value]
    if type(value) in (tuple, torch.Size):
        return {"tuple": [each(item) for item in value]}  # type: ignore[attr-defined]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"named": reference_of(type(value)), "items": [each(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[each(key), each(item)] for key, item in value.items()]}
    if type(value) in (slice, range):
        kind = "slice" if type(value) is slice else "range"
        return {kind: [each(value.start), each(value.stop), each(value.step)]}  # type: ignore[attr-defined]
    if value is ...:
        return {"ellipsis": True}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {item.name: each(getattr(value, item.name)) for item in dataclasses.fields(value)}
        return {"dataclass": reference_of(type(value)), "fields": fields}
    return {"object": reference_of(value)}


_HOMES_OF_BUILTINS = ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "operator", "math")


def reference_of(value: object) -> str:
    """`module:qualname` of an object that importing gives back. Raises `NotPortableError`."""
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(qualname, str):
        raise NotPortableError(f"an object of type {type(value).__module__}.{type(value).__qualname__}")
    if not isinstance(module, str) or isinstance(value, BuiltinFunctionType):
        return _reference_of_builtin(value, qualname)
    if module in ("__main__", "__mp_main__") or "<" in qualname:
        raise NotPortableError(f"{qualname} of {module}, which cannot be imported")
    for place in (module, *_other_places(module, qualname)):
        if _found(f"{place}:{qualname}") is value:
            return f"{place}:{qualname}"
    raise NotPortableError(f"{qualname} of {module}, which importing does not give back")


def _other_places(module: str, qualname: str) -> list[str]:
    """Modules of the same package that have something of this name: a factory's classes bear the factory's module."""
    package = module.partition(".")[0]
    return sorted(
        name
        for name, each in tuple(sys.modules.items())
        if name.partition(".")[0] == package and qualname in getattr(each, "__dict__", ())
    )


def _reference_of_builtin(value: object, qualname: str) -> str:
    """Functions written in C do not know where they can be imported from."""
    name = qualname.rpartition(".")[2]
    for module in (getattr(value, "__module__", None), *_HOMES_OF_BUILTINS):
        if isinstance(module, str) and _found(f"{module}:{name}") is value:
            return f"{module}:{name}"
    raise NotPortableError(f"the builtin {qualname}, whose module is not known")


def _found(reference: str) -> object:
    try:
        return resolve(reference)
    except (ImportError, AttributeError):
        return None


def resolve(reference: str) -> object:
    """The object of a `module:qualname`."""
    module, _, qualname = reference.partition(":")
    found: object = import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def decode_value(raw: Json, load: Callable[[str], Tensor]) -> Any:
    """An argument from its JSON; `load` gives attached tensors by name."""

    def each(item: Json) -> Any:
        return decode_value(item, load)

    if raw is None or isinstance(raw, str | bool | int | float):
        return raw
    if isinstance(raw, list):
        return [each(item) for item in raw]
    if "tensor" in raw:
        return decode_tensor(raw["tensor"], load)
    if "float" in raw:
        return float(raw["float"])
    if "complex" in raw:
        return complex(float(raw["complex"][0]), float(raw["complex"][1]))
    if "torch" in raw:
        return getattr(torch, raw["torch"])
    if "device" in raw:
        return torch.device(raw["device"])
    if "enum" in raw:
        return getattr(resolve(raw["enum"]), raw["name"])
    return _decode_container(raw, each)


def _decode_container(raw: Mapping[str, Json], each: Callable[[Json], Any]) -> Any:
    if "tuple" in raw:
        return tuple(each(item) for item in raw["tuple"])
    if "dict" in raw:
        return {each(key): each(item) for key, item in raw["dict"]}
    if "slice" in raw:
        return slice(*(each(item) for item in raw["slice"]))
    if "range" in raw:
        return range(*raw["range"])
    if "ellipsis" in raw:
        return ...
    if "named" in raw:
        return _callable(raw["named"])(*(each(item) for item in raw["items"]))
    if "dataclass" in raw:
        return _callable(raw["dataclass"])(**{name: each(item) for name, item in raw["fields"].items()})
    if "object" in raw:
        return resolve(raw["object"])
    raise ValueError(f"not a recorded value: an object with the keys {', '.join(sorted(raw))[:80]}")


def _callable(reference: str) -> Callable[..., Any]:
    found = resolve(reference)
    assert callable(found)
    return found


def seeds(text: str) -> Callable[[], int]:
    """Seeds that follow from `text`, one a call: the same recording gives the same seeds."""
    count = 0

    def following() -> int:
        nonlocal count
        count += 1
        return int.from_bytes(hashlib.sha256(f"{text}/{count}".encode()).digest()[:6], "big")

    return following
