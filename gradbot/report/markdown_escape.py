"""Untrusted text made safe for GitHub's markdown: it shows as it stands, and does nothing.

Cut first, then escape. A value that went through here is `Safe`; the templates escape everything else on their own.
"""

from __future__ import annotations

import html
import re
from urllib.parse import quote

from gradbot.report import text

ZERO_WIDTH = "\u200b"
_SPECIAL = re.compile(r"([\\`*_~\[\]|])")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
_EMOJI = re.compile(r":(?=[A-Za-z0-9_+-]+:)")
_MARKED = re.compile(r"^([-+=])(?=\s|$|\1)")
_PING = re.compile("(?<!&)([@#])")
_SCHEME = re.compile(r"(?i)(mailto|xmpp):|:(?=//)")
_WWW = re.compile(r"(?i)(www)\.")
_GH = re.compile(r"(?i)(GH)-(?=\d)")
_RUN = re.compile("`+")
_COMMENT = re.compile("<!-*|-->|--!>")


class Safe(str):
    """Markdown that is meant as it stands."""

    __slots__ = ()


def escape(value: object, limit: int = 300) -> Safe:
    """Text for a paragraph, heading, list item or table cell, on one line, at most `limit` characters of it."""
    if isinstance(value, Safe):
        return value
    plain = text.one_line(str(value), limit)
    marked = _SPECIAL.sub(r"\\\1", plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    marked = _MARKED.sub(r"\\\1", marked)
    marked = _NUMBERED.sub(r"\1\\\2", marked)
    return Safe(_inert(marked).replace("$", "<span>$</span>"))


def code(value: object, limit: int = 200) -> Safe:
    """A code span, on one line; fit for a table cell. Nothing inside is cross-referenced by GitHub."""
    plain = _COMMENT.sub("", text.one_line(str(value), limit)).strip()
    if not plain:
        return Safe("` `")
    fence = "`" * (_longest(plain) + 1)
    edge = " " if plain[0] == "`" or plain[-1] == "`" else ""
    # A pipe ends a cell even inside code, unless a backslash stands before it; that one is taken out again. Outside
    # a table it would show, so pipes become their look-alike there and here.
    return Safe(f"{fence}{edge}{plain.replace('|', '∣')}{edge}{fence}")


def fenced(value: object, language: str = "text", limit: int = 6000) -> Safe:
    """A block of code, its fence longer than any run inside."""
    plain = _COMMENT.sub("", text.clean(text.cut(str(value), limit))).strip("\n")
    fence = "`" * max(3, _longest(plain) + 1)
    return Safe(f"{fence}{language}\n{plain}\n{fence}")


def in_html(value: object, limit: int = 300) -> Safe:
    """Text inside an HTML block, such as a `<summary>`, where markdown is not read."""
    if isinstance(value, Safe):
        return value
    plain = text.one_line(str(value), limit)
    return Safe(_inert(html.escape(plain)).replace("$", "<span>$</span>").replace("`", "&#96;"))


def html_code(value: object, limit: int = 200) -> Safe:
    """A code span inside an HTML block."""
    return Safe(f"<code>{html.escape(_COMMENT.sub('', text.one_line(str(value), limit)))}</code>")


def link(label: Safe, url: str) -> Safe:
    """A link where `url` is one of the web's, else the label alone."""
    if not url.startswith(("https://", "http://")) or text.has_hidden(url):
        return label
    return Safe(f"[{label}]({quote(url, safe=_URL_SAFE)})")


_URL_SAFE = "/:?#@!$&'*+,;=%~-._"


def _inert(value: str) -> str:
    """No mention, cross-reference, bare link or emoji code is left alive."""
    value = _SCHEME.sub(rf"\1:{ZERO_WIDTH}", value)
    value = _WWW.sub(rf"\1{ZERO_WIDTH}.", value)
    value = _GH.sub(rf"\1{ZERO_WIDTH}-", value)
    value = _EMOJI.sub(f":{ZERO_WIDTH}", value)
    # The number sign of a character reference is part of its syntax.
    return _PING.sub(rf"\1{ZERO_WIDTH}", value)


def _longest(value: str) -> int:
    return max((len(run) for run in _RUN.findall(value)), default=0)
