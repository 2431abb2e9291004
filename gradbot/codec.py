"""The model as JSON and back, strictly.

Writing leaves out what equals its default. Floats that JSON lacks are written as ``{"float": "nan"}`` (``inf``,
``-inf``), complex numbers as ``{"re": 1.0, "im": 2.0}``. Reading accepts nothing else: unknown keys, duplicate keys,
wrong types, bare NaN and anything over the caps raise `CodecError` with the place.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from gradbot import model

T = TypeVar("T")
Json = Any


class CodecError(ValueError):
    """A text that is not what this version writes. The message names the place and what was expected there."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Bounds on what is read: bytes of text, nesting, number of JSON values, characters in one string."""

    bytes: int = 256 << 20
    depth: int = 24
    values: int = 20_000_000
    string: int = 1 << 20


DEFAULT_CAPS = Caps()
HOSTILE_CAPS = Caps(bytes=32 << 20, values=3_000_000, string=64 << 10)
"""For reports that others made: what a fork's pull request uploads."""


def dumps(value: object, *, indent: int | None = None) -> str:
    """A model value as JSON text."""
    separators = (",", ":") if indent is None else None
    return json.dumps(encode(value), indent=indent, separators=separators, allow_nan=False, ensure_ascii=True)


def encode(value: object) -> Json:
    """A model value as what `json` can write."""
    if value is None or (isinstance(value, str | bool | int) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, complex):
        return {"re": encode(value.real), "im": encode(value.imag)}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: encode(item)
            for name, default in _defaults(type(value))
            if (item := getattr(value, name)) is not None and (name == "schema_version" or not _same(item, default))
        }
    raise TypeError(f"cannot write {type(value).__name__} to JSON")


def loads(text: str | bytes, cls: type[T], *, caps: Caps = DEFAULT_CAPS) -> T:
    """Read a model value of class `cls`.

    Raises `CodecError` for anything that `dumps` would not have written.
    """
    if len(text) > caps.bytes:
        raise CodecError(f"the text is larger than {caps.bytes} bytes")
    try:
        raw = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise CodecError(f"nested deeper than {caps.depth}") from None
    except UnicodeDecodeError as error:
        raise CodecError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except CodecError:
        raise
    except ValueError as error:
        raise CodecError(f"not JSON: {error}") from None
    _hold_caps(raw, caps)
    return decode(raw, cls)


def decode(raw: Json, cls: type[T]) -> T:
    """Turn parsed JSON into a value of class `cls`; raises `CodecError`."""
    if cls is model.Report and isinstance(raw, dict):
        version = raw.get("schema_version")
        if version != model.SCHEMA_VERSION:
            raise CodecError(
                f"schema_version is {version!r}; this gradbot reads version {model.SCHEMA_VERSION}. "
                "Make the report again with this version, or read it with the one that wrote it."
            )
    try:
        result = _reader(typing.cast(typing.Hashable, cls))(raw)
    except _MisfitError as error:
        raise CodecError(f"${error.place}: {error.reason}") from None
    assert isinstance(result, cls)
    return result


class _MisfitError(Exception):
    """A value that does not fit. The place is put together on the way out, so that reading costs nothing for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = ""

    def within(self, place: str) -> _MisfitError:
        """The same, seen from one level further out."""
        self.place = place + self.place
        return self


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise CodecError(f"the key {twice[:80]!r} stands twice in one object")
    return result


def _no_constant(name: str) -> Json:
    raise CodecError(f"{name} is not JSON")


def _hold_caps(raw: Json, caps: Caps) -> None:
    count, level, depth = 0, [raw], 0
    while level:
        depth += 1
        count += len(level)
        if depth > caps.depth:
            raise CodecError(f"nested deeper than {caps.depth}")
        if count > caps.values:
            raise CodecError(f"more than {caps.values} values")
        below: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                if any(len(key) > caps.string for key in item):
                    raise CodecError(f"a key is longer than {caps.string} characters")
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, str) and len(item) > caps.string:
                raise CodecError(f"a string is longer than {caps.string} characters")
        level = below


def _same(item: object, default: object) -> bool:
    return type(item) is type(default) and item == default


@cache
def _defaults(cls: type) -> tuple[tuple[str, object], ...]:
    def default(each: dataclasses.Field[object]) -> object:
        if each.default_factory is not dataclasses.MISSING:
            return each.default_factory()
        return each.default

    return tuple((each.name, default(each)) for each in dataclasses.fields(cls))


Reader = Callable[[Json], Any]


@cache
def _reader(kind: Any) -> Reader:
    origin = typing.get_origin(kind)
    if kind in (str, bool, int):
        return _plain_reader(kind)
    if kind is float:
        return _read_float
    if kind is complex:
        return _read_complex
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum_reader(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record_reader(kind)
    if origin is tuple:
        return _tuple_reader(typing.get_args(kind)[0])
    if origin is Mapping:
        return _mapping_reader(typing.get_args(kind)[1])
    if origin in (typing.Union, types.UnionType):
        return _union_reader(typing.get_args(kind))
    raise TypeError(f"no reader for {kind}")


def _wrong(expected: str, raw: Json) -> _MisfitError:
    found = "null" if raw is None else type(raw).__name__
    return _MisfitError(f"expected {expected}, found {found} {json.dumps(raw, default=str)[:60]}")


def _plain_reader(kind: type) -> Reader:
    def read(raw: Json) -> Any:
        if type(raw) is not kind:
            raise _wrong(kind.__name__, raw)
        return raw

    return read


def _read_float(raw: Json) -> float:
    if type(raw) is float and math.isfinite(raw):  # 1e999 is JSON, and infinite
        return raw
    if type(raw) is int:
        try:
            return float(raw)
        except OverflowError:
            raise _wrong("float", str(raw)) from None
    if type(raw) is dict and raw.keys() == {"float"} and raw["float"] in ("nan", "inf", "-inf"):
        return float(raw["float"])
    raise _wrong("float", raw)


def _read_complex(raw: Json) -> complex:
    if type(raw) is dict and raw.keys() == {"re", "im"}:
        return complex(_read_float(raw["re"]), _read_float(raw["im"]))
    raise _wrong("complex", raw)


def _enum_reader(kind: type[Enum]) -> Reader:
    members = {member.value: member for member in kind}

    def read(raw: Json) -> Any:
        if type(raw) is not str or raw not in members:
            raise _wrong("one of " + ", ".join(map(str, members)), raw)
        return members[raw]

    return read


def _record_reader(kind: type) -> Reader:
    hints = typing.get_type_hints(kind)
    nothing = dataclasses.MISSING
    fields = dataclasses.fields(kind)
    required = {each.name for each in fields if each.default is nothing and each.default_factory is nothing}
    readers: dict[str, Reader] = {}

    def read(raw: Json) -> Any:
        if type(raw) is not dict:
            raise _wrong(kind.__name__, raw)
        if not readers:
            readers.update({name: _reader(hint) for name, hint in hints.items()})
        if unknown := raw.keys() - readers.keys():
            raise _MisfitError(f"unknown key {min(unknown)[:80]!r} in {kind.__name__}")
        values, name = {}, ""
        try:
            for name, item in raw.items():
                values[name] = readers[name](item)
        except _MisfitError as error:
            raise error.within(f".{name[:80]}") from None
        if not required <= raw.keys():
            raise _MisfitError(f"{kind.__name__} lacks {', '.join(sorted(required - raw.keys()))}")
        return kind(**values)

    return read


def _tuple_reader(item_kind: Any) -> Reader:
    read_item = _reader(item_kind)

    def read(raw: Json) -> Any:
        if type(raw) is not list:
            raise _wrong("list", raw)
        items: list[Any] = []
        try:
            items.extend(map(read_item, raw))
        except _MisfitError as error:
            raise error.within(f"[{len(items)}]") from None
        return tuple(items)

    return read


def _mapping_reader(item_kind: Any) -> Reader:
    read_item = _reader(item_kind)

    def read(raw: Json) -> Any:
        if type(raw) is not dict:
            raise _wrong("object", raw)
        values, name = {}, ""
        try:
            for name, item in raw.items():
                values[name] = read_item(item)
        except _MisfitError as error:
            raise error.within(f".{name[:80]}") from None
        return values

    return read


def _union_reader(kinds: tuple[Any, ...]) -> Reader:
    """Readers are tried in an order in which no JSON value is taken for another: bool before int before float."""
    order = [bool, int, float, complex, str]
    some = (each for each in kinds if each is not type(None))
    ranked = sorted(some, key=lambda kind: order.index(kind) if kind in order else len(order))
    readers = [_reader(each) for each in ranked]
    optional = type(None) in kinds
    expected = " or ".join(getattr(each, "__name__", str(each)) for each in ranked)

    def read(raw: Json) -> Any:
        if raw is None:
            if optional:
                return None
            raise _wrong(expected, raw)
        if len(readers) == 1:
            return readers[0](raw)
        for reader in readers:
            try:
                return reader(raw)
            except _MisfitError:
                continue
        raise _wrong(expected, raw)

    return read


def schema() -> dict[str, Json]:
    """The JSON Schema (draft 2020-12) of a report, derived from the model's own types."""
    definitions: dict[str, Json] = {}
    root = _schema_of(model.Report, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gradbot report, version 1",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _schema_of(kind: Any, definitions: dict[str, Json]) -> dict[str, Json]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    simple = {str: "string", bool: "boolean", int: "integer", type(None): "null"}
    if kind in simple:
        return {"type": simple[kind]}
    if kind is float:
        special = {"properties": {"float": {"enum": ["nan", "inf", "-inf"]}}, "required": ["float"]}
        return {"anyOf": [{"type": "number"}, {"type": "object", **special, "additionalProperties": False}]}
    if kind is complex:
        part = _schema_of(float, definitions)
        parts = {"properties": {"re": part, "im": part}, "required": ["re", "im"]}
        return {"type": "object", **parts, "additionalProperties": False}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(arguments[0], definitions)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1], definitions)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema_of(each, definitions) for each in arguments]}
    return _record_schema(kind, definitions)


def _record_schema(kind: Any, definitions: dict[str, Json]) -> dict[str, Json]:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}
        hints = typing.get_type_hints(kind)
        fields = dataclasses.fields(kind)
        nothing = dataclasses.MISSING
        required = [each.name for each in fields if each.default is nothing and each.default_factory is nothing]
        definitions[name] = {
            "type": "object",
            "description": (kind.__doc__ or "").split("\n")[0],
            "properties": {each.name: _schema_of(hints[each.name], definitions) for each in fields},
            "required": [*required, "schema_version"] if kind is model.Report else required,
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}
