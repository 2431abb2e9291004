"""Hypothesis strategies for whole reports, realistic and hostile alike, made from the model's own types."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from gradbot import messages, model
from gradbot.rules import RULES

WHOLE_REPORTS = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    database=None,
)
"""For tests over whole reports: what fails is shown as it was found, for making it smaller takes minutes."""

FRAGMENTS = (
    "kernels.softcap:SoftCap",
    "mylib::ragged_sum",
    "backward",
    "@everyone",
    "fixes #1",
    "GH-12",
    "`",
    "```",
    "````\n",
    "|",
    "<!-- gradbot:x -->",
    "-->",
    "</details>",
    "<script>alert(1)</script>",
    "]]>",
    "&amp;",
    "&",
    '"',
    "'",
    "\\",
    "\n",
    "\r\n",
    "\t",
    "\x00",
    "\x0b",
    "\x1b[31m",
    "\x1b]8;;http://a\x07",
    "\x7f",
    "\x85",
    "\u2028",
    "\u202e",
    "\u2066",
    "\ufffe",
    "\ud800",
    "\U0001f600",
    "http://evil.example/?a=b",
    "www.evil.example",
    "a@evil.example",
    "$x$",
    "$$",
    ":tada:",
    "[a](b)",
    "![a](b)",
    "*",
    "_",
    "~~",
    "# head",
    "- item",
    "1. item",
    "> quote",
    "::error::x",
    "%0A",
    ":",
    ",",
    "$(rm -rf /)",
    "; ls",
    "../../etc/passwd",
    "/etc/passwd",
    "C:\\x",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "{message}",
    "{0}",
)


def hostile_text(most: int = 6) -> st.SearchStrategy[str]:
    """Text of fragments that do something somewhere: markup, escapes, controls, mentions, templates."""
    piece = st.sampled_from(FRAGMENTS) | st.text(max_size=8) | st.characters(blacklist_categories=())
    return st.lists(piece, max_size=most).map("".join)


_NAMED: Mapping[tuple[str, str], st.SearchStrategy[Any]] = {
    ("Finding", "kind"): st.sampled_from(sorted(RULES)) | hostile_text(2),
    ("Finding", "check"): st.sampled_from([name.value for name in model.CheckName]) | hostile_text(2),
    ("CheckResult", "check"): st.sampled_from([name.value for name in model.CheckName]) | hostile_text(2),
    ("CheckResult", "reason"): st.sampled_from(["", *messages.REASONS]) | hostile_text(2),
    ("CaseResult", "reason"): st.sampled_from(["", *messages.REASONS]) | hostile_text(2),
    ("Diagnosis", "pattern"): st.sampled_from(sorted(messages.PATTERNS)) | hostile_text(2),
    ("Note", "code"): st.sampled_from(sorted(messages.NOTES)) | hostile_text(2),
    ("Crash", "cause"): st.sampled_from(["signal", "exit", "timeout", "memory", "protocol", "exception", "?"]),
    ("Case", "target"): st.sampled_from(["pkg.mod:A", "pkg.mod:B", "ns::op"]) | hostile_text(3),
    ("Case", "device"): st.sampled_from(["cpu", "cuda:0"]) | hostile_text(2),
    ("Target", "id"): st.sampled_from(["pkg.mod:A", "pkg.mod:B", "ns::op"]) | hostile_text(3),
    ("JacobianMap", "what"): st.sampled_from(["error", "analytical", "numerical"]) | hostile_text(1),
    ("Report", "schema_version"): st.just(model.SCHEMA_VERSION),
}


def reports() -> st.SearchStrategy[model.Report]:
    """Reports of any shape that the codec can read."""
    result: st.SearchStrategy[model.Report] = of(model.Report)
    return result


@cache
def of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type of the model."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is type(None):
        return st.none()
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(-3, 10_000) | st.integers(-(2**63), 2**63)
    if kind is float:
        return st.floats(width=64) | st.floats(0, 1) | st.just(0.0)
    if kind is complex:
        return st.complex_numbers(max_magnitude=1e6)
    if kind is str:
        return hostile_text(3)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if origin is tuple:
        return st.lists(of(arguments[0]), max_size=2).map(tuple)
    if origin is Mapping:
        names = st.sampled_from(["message", "target", "dtype", "reason", "factor"]) | hostile_text(1)
        return st.dictionaries(names, of(arguments[1]), max_size=2)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(of(each) for each in arguments))
    return st.deferred(lambda: _record(kind))


@cache
def _record(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    names = [each.name for each in dataclasses.fields(kind)]
    named = {(kind.__name__, name): of(hints[name]) for name in names}
    chosen = {**named, **{key: value for key, value in _NAMED.items() if key in named}}
    return st.builds(kind, **{name: strategy for (_, name), strategy in chosen.items()})
