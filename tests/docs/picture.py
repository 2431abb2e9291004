"""Draws `docs/run.svg` from a real run of the demo: `python -m docs.picture`, run in `tests`.

The picture is cut to the list, one failure in full and the closing line; nothing in it is written by hand.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gradbot import codec
from gradbot.model import Report
from gradbot.report import terminal

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 112
SHOWN = "gradbot.demo.wrong_factor:SoftCap"


def demo_report() -> Report:
    """The report of a fresh run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gradbot", "check", "gradbot.demo", "-q", "--json", f"{folder}/report.json"]
        subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
        return codec.loads(Path(folder, "report.json").read_bytes(), Report)


def shown_lines(text: str) -> list[str]:
    """The list, the paragraph of one failure, and the closing line."""
    paragraphs = text.strip("\n").split("\n\n")
    detail = next(each for each in paragraphs[1:] if SHOWN in Text.from_ansi(each.splitlines()[0]).plain)
    return [*paragraphs[0].splitlines(), "", *detail.splitlines(), "", *paragraphs[-1].splitlines()]


def picture(report: Report) -> str:
    """The run as SVG."""
    text = terminal.render(report, width=WIDTH, colour=True, files=(".gradbot/report.json", ".gradbot/report.html"))
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text("$ gradbot check gradbot.demo\n", style="bold"))
    for line in shown_lines(text):
        console.print(Text.from_ansi(line), soft_wrap=True)
    return console.export_svg(title="gradbot check gradbot.demo")


if __name__ == "__main__":
    (ROOT / "docs" / "run.svg").write_text(picture(demo_report()), encoding="utf-8")
