"""The last lines that user code printed, within bounds and safe to show."""

from __future__ import annotations

import re

TAIL_BYTES = 8 << 10
TAIL_LINES = 40
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


class Tail:
    """Keeps the end of a stream of bytes."""

    def __init__(self) -> None:
        self._kept = b""

    def feed(self, data: bytes) -> None:
        """Take more output."""
        self._kept = (self._kept + data[-TAIL_BYTES:])[-TAIL_BYTES:]

    def clear(self) -> None:
        """Forget what came so far."""
        self._kept = b""

    def text(self) -> str:
        """The last lines as text. Bytes that are not UTF-8 and control characters are spelled out as escapes."""
        text = _ANSI.sub("", self._kept.decode("utf-8", errors="backslashreplace"))
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
        return "\n".join(text.strip("\n").split("\n")[-TAIL_LINES:])
