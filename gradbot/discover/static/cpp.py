"""Registrations in C++ and CUDA sources, as far as text shows them: TORCH_LIBRARY blocks and `m.def` in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gradbot.discover.static.ops import Registration, op_id
from gradbot.model import Location

_BLOCK = re.compile(
    r"\b(?:STABLE_)?TORCH_LIBRARY(?P<kind>_FRAGMENT|_IMPL)?\s*\(\s*(?P<namespace>\w+)\s*,"
    r"\s*(?:(?P<key>\w+)\s*,\s*)?(?P<variable>\w+)\s*\)\s*\{"
)
_STATEMENT = (
    r"\b{variable}\s*\.\s*(?P<verb>def|impl)\s*\(\s*(?P<wrapped>(?:TORCH_SELECTIVE_SCHEMA|torch::schema)\s*\(\s*)?"
)
_STRINGS = re.compile(r'\s*(?:R"\((?P<raw>.*?)\)"|"(?P<plain>(?:[^"\\]|\\.)*)")', re.DOTALL)
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*")', re.DOTALL)


def cpp_registrations(path: Path, shown: str) -> Iterator[Registration]:
    """Registrations in one file; `shown` is its path as it shows in locations. Raises OSError."""
    text = _without_comments(path.read_text("utf-8", errors="replace"))
    for block in _BLOCK.finditer(text):
        body = text[block.end() : _end_of_block(text, block.end())]
        for statement in re.finditer(_STATEMENT.format(variable=re.escape(block["variable"])), body):
            literal = _literal(body, statement.end())
            if not literal:
                continue
            name, _, signature = literal.partition("(")
            op = op_id(f"{block['namespace']}::{name.strip().rpartition('::')[2]}")
            line = text.count("\n", 0, block.end() + statement.start()) + 1
            defines = statement["verb"] == "def"
            has_kernel = "," in _STRINGS.sub("", body[statement.end() : body.find(";", statement.end())])
            yield Registration(
                op=op,
                part="define" if defines else "impl",
                location=Location(path=shown, line=line, symbol=op),
                module="",
                key=block["key"] or ("CompositeImplicitAutograd" if not defines or has_kernel else ""),
                schema=f"{op}({signature}" if signature and defines else "",
            )


def _literal(body: str, start: int) -> str:
    """The string at `start`, adjacent literals joined as C++ does."""
    parts = []
    while (match := _STRINGS.match(body, start)) is not None:
        parts.append(match["raw"] if match["raw"] is not None else match["plain"])
        start = match.end()
    return "".join(parts)


def _without_comments(text: str) -> str:
    """The text with comments blanked out, line numbers kept."""
    return _COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)


def _end_of_block(text: str, start: int) -> int:
    depth = 1
    for index in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return len(text)
