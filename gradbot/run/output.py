"""The last lines that user code printed, within bounds and safe to show."""

from __future__ import annotations

import re
from pathlib import Path

TAIL_BYTES = 8 << 10
_PACKAGE = Path(__file__).resolve().parent.parent
_OWN_FRAME = re.compile(
    rf'  File "({re.escape(str(_PACKAGE))}/(worker|engine|inputs|discover)/|<string>", line \d+ in <module>$)'
    "|Extension modules: "
)
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
        """The last lines as text. Bytes that are not UTF-8 and control characters are spelled out as escapes.

        Of the stacks that are printed when a process dies or hangs, gradbot's own frames are left out.
        """
        text = _ANSI.sub("", self._kept.decode("utf-8", errors="backslashreplace"))
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
        lines = [line for line in text.strip("\n").split("\n") if not _OWN_FRAME.match(line)]
        return "\n".join(lines[-TAIL_LINES:])
