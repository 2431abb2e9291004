"""Reading reports, baselines and sources, and writing what was rendered: one clear line for what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gradbot import codec
from gradbot.errors import UsageError
from gradbot.model import Report
from gradbot.report import baseline
from gradbot.report.baseline import Baseline

_MOST_SOURCE_BYTES = 2 << 20


def read_report(path: Path, caps: codec.Caps = codec.DEFAULT_CAPS) -> Report:
    """The report in a file, or the `report.json` of a folder; raises `UsageError`."""
    path = path / "report.json" if path.is_dir() else path
    try:
        content = path.read_bytes()
    except OSError as error:
        advice = "`gradbot check` writes one"
        raise UsageError(f"cannot read the report {path}: {error.strerror or error}; {advice}") from None
    try:
        return codec.loads(content, Report, caps=caps)
    except codec.CodecError as error:
        raise UsageError(f"{path} is not a report of this gradbot: {error}") from None


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file; raises `UsageError`."""
    try:
        content = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the baseline {path}: {error}; `gradbot baseline update` writes one") from None
    return baseline.loads(content, str(path))


def read_sources(report: Report, root: Path) -> Mapping[str, str]:
    """The sources under `root` that the report's locations name; what is missing, large or outside is left out."""
    sources: dict[str, str] = {}
    inside = root.resolve()
    for name in sorted(_paths(report)):
        path = (root / name).resolve()
        try:
            if not path.is_relative_to(inside) or path.stat().st_size > _MOST_SOURCE_BYTES:
                continue
            sources[name] = path.read_text("utf-8", errors="replace")
        except (OSError, ValueError):
            continue
    return sources


def _paths(report: Report) -> Iterable[str]:
    for target in report.targets:
        yield from (place.path for place in target.methods.values())
    for result in report.results:
        for check in result.checks:
            yield from (finding.location.path for finding in check.findings if finding.location is not None)


def write_text(path: Path, content: str) -> None:
    """Write a file and the folders above it; raises `UsageError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
