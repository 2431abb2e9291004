"""Reads configuration: finds the file, holds each value to its field's type, and says in one line what is wrong."""

from __future__ import annotations

import difflib
import re
import sys
import typing
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from gradbot.config.documentation import option_fields
from gradbot.config.values import DTYPES, Config, TargetTable, names_a_rule, parse_size
from gradbot.errors import UsageError
from gradbot.model import EXPECTATIONS, CheckName
from gradbot.rules import RULES

FILE_NAME = "gradbot.toml"
ENVIRONMENT_PREFIX = "GRADBOT_"

_DTYPE_ALIASES = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "cdouble": "complex128",
    "cfloat": "complex64",
    "chalf": "complex32",
}


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def load(config_path: Path | None, start: Path, overrides: Mapping[str, Any], environ: Mapping[str, str]) -> Config:
    """The configuration that holds: defaults, then the file, then GRADBOT_* variables, then `overrides`.

    The file is `config_path`, else the one that GRADBOT_CONFIG names, else the nearest gradbot.toml or pyproject.toml
    with a `[tool.gradbot]` table at or above `start`. Overrides that are None or an empty tuple are not set. Raises
    `UsageError` with key, file and the nearest valid key.
    """
    chosen = config_path or (Path(environ["GRADBOT_CONFIG"]) if environ.get("GRADBOT_CONFIG") else None)
    if chosen is not None and not chosen.is_file():
        raise UsageError(f"no configuration file {chosen}")
    path = chosen or _find(start.resolve())
    values = _values(Config, _table(path), str(path)) if path is not None else {}
    from_environment = _from_environment(environ)
    given = {name: value for name, value in overrides.items() if value is not None and value != ()}
    from_flags = _values(Config, given, "the command line")
    root = path.resolve().parent if path is not None else project_root(start)
    return Config(
        **{**values, **from_environment, **from_flags},
        root=str(root),
        source=str(path) if path is not None else "",
        flags=tuple(sorted({*from_environment, *from_flags})),
    )


def project_root(start: Path) -> Path:
    """The nearest folder at or above `start` that holds `.git` or a pyproject.toml; `start` itself if none does."""
    start = start.resolve()
    folder = start if start.is_dir() else start.parent
    for each in (folder, *folder.parents):
        if (each / ".git").exists() or (each / "pyproject.toml").is_file():
            return each
    return folder


def _find(start: Path) -> Path | None:
    folder = start if start.is_dir() else start.parent
    for each in (folder, *folder.parents):
        if (each / FILE_NAME).is_file():
            return each / FILE_NAME
        if (each / "pyproject.toml").is_file() and _has_table(each / "pyproject.toml"):
            return each / "pyproject.toml"
        if (each / ".git").exists():
            return None
    return None


def _has_table(path: Path) -> bool:
    return "gradbot" in _subtable(_parse(path), "tool", str(path))


def _parse(path: Path) -> dict[str, Any]:
    # imported here: an interpreter that runs workers may lack tomli, and never reads a file
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _table(path: Path) -> dict[str, Any]:
    """The options in a file: its `[tool.gradbot]` table, or the whole of a file that has none and is not pyproject."""
    parsed = _parse(path)
    tool = _subtable(parsed, "tool", str(path))
    if path.name == "pyproject.toml" or "gradbot" in tool:
        return _subtable(tool, "gradbot", str(path))
    return parsed


def _subtable(table: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise UsageError(f"{where}: {key} must be a table, found {_show(value)}")
    return value


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    hints = _hints(Config)
    for each in option_fields(Config):
        variable = ENVIRONMENT_PREFIX + each.name.upper()
        text = environ.get(variable, "")
        if text and each.name != "targets":
            raw = _from_text(text, hints[each.name])
            values |= _values(Config, {each.name: raw}, f"the environment variable {variable}")
    return values


def _from_text(text: str, hint: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        return [part for part in re.split(r"[,\s]+", text) if part]
    plain = {member for member in (*typing.get_args(hint), hint) if isinstance(member, type)}
    if bool in plain:
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(text.lower(), text)
    for number in (int, float):
        if number in plain:
            try:
                return number(text)
            except ValueError:
                return text
    return text


def _values(cls: type, table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The table's values, each held to the type of the field of its name."""
    fields = {each.name: each for each in option_fields(cls)}
    hints = _hints(cls)
    values: dict[str, Any] = {}
    for raw_key, raw in table.items():
        key = raw_key.replace("-", "_")
        if key not in fields:
            raise UsageError(f"{where}: unknown key {raw_key!r}{nearest(key, fields)}")
        if cls is Config and key == "targets":
            values[key] = raw if isinstance(raw, tuple) else _target_tables(raw, where)
            continue
        try:
            values[key] = _convert(raw, hints[key], fields[key].metadata["of"])
        except ValueError as error:
            raise UsageError(f"{where}: {raw_key}: {error}") from None
    return values


def _target_tables(raw: object, where: str) -> tuple[TargetTable, ...]:
    if not isinstance(raw, dict):
        raise UsageError(f'{where}: targets must hold tables [tool.gradbot.targets."<glob>"], found {_show(raw)}')
    return tuple(read_target_table(pattern, table, f'{where}: targets."{pattern}"') for pattern, table in raw.items())


def read_target_table(pattern: str, raw: object, where: str) -> TargetTable:
    """The settings of one target, held to their types. Raises `UsageError`, which begins with `where`."""
    if not isinstance(raw, dict):
        raise UsageError(f"{where} must be a table, found {_show(raw)}")
    values = _values(TargetTable, raw, where)
    if values.get("expect") and not values.get("reason"):
        raise UsageError(f'{where}: expect = {values["expect"]!r} needs a reason: add reason = "..."')
    return TargetTable(pattern=pattern, **values)


def _convert(raw: Any, hint: Any, of: str) -> Any:
    """The value as the field's type. Raises ValueError with what was expected and found."""
    if typing.get_origin(hint) is typing.Union or type(hint).__name__ == "UnionType":
        (hint,) = (each for each in typing.get_args(hint) if each is not type(None))
    if typing.get_origin(hint) is tuple:
        items = [raw] if isinstance(raw, str) else raw
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
            raise ValueError(f"expected a list of strings, found {_show(raw)}")
        return tuple(_check_text(item, of) for item in items)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice(raw, hint)
    if hint is float and type(raw) is int:
        raw = float(raw)
    if hint is int and raw == "auto":
        return 0
    if type(raw) is not hint:
        raise ValueError(f"expected {_TYPE_NAMES[hint]}, found {_show(raw)}")
    if hint in (int, float) and not raw >= 0:
        raise ValueError(f"expected a number that is not negative, found {_show(raw)}")
    if of == "positive" and raw == 0:
        raise ValueError("expected a number above zero, found 0")
    return _check_text(raw, of) if hint is str else raw


_TYPE_NAMES = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}


def _choice(raw: Any, kind: type[Enum]) -> Enum:
    members = {member.value: member for member in kind}
    text = raw.value if isinstance(raw, Enum) else raw
    if not isinstance(text, str) or text not in members:
        found = f"found {_show(raw)}" + (nearest(text, members) if isinstance(text, str) else "")
        raise ValueError(f"expected one of {', '.join(members)}; {found}")
    return members[text]


def _check_text(text: str, of: str) -> str:
    """Hold a text to what it must name. Raises ValueError."""
    if of == "check" and text not in (checks := [each.value for each in CheckName]):
        raise ValueError(f"unknown check {text!r}{nearest(text, checks)}")
    if of == "dtype":
        name = text.removeprefix("torch.")
        name = _DTYPE_ALIASES.get(name, name)
        if name not in DTYPES:
            raise ValueError(f"unknown dtype {text!r}{nearest(name, DTYPES)}")
        return name
    if of == "device" and not re.fullmatch(r"[a-z]+(:\d+)?", text):
        raise ValueError(f'expected a device such as "cpu" or "cuda:0", found {text!r}')
    if of == "rule" and not names_a_rule(text):
        known = [*RULES, *(rule.id for rule in RULES.values())]
        raise ValueError(f"unknown rule {text!r}{nearest(text, known)}")
    if of == "expectation" and text and text not in EXPECTATIONS:
        raise ValueError(f"expected one of {', '.join(EXPECTATIONS)}; found {text!r}")
    if of == "size":
        try:
            parse_size(text)
        except ValueError:
            raise ValueError(f'expected a size such as "4 GiB" or "512 MiB", found {text!r}') from None
    return text


def nearest(name: str, valid: Iterable[str]) -> str:
    """`; did you mean ...?` where something valid is near, else the list of what is valid if that is short."""
    known = list(valid)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; valid are {', '.join(sorted(known))}" if len(known) <= 40 else ""


def _show(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
