"""The table of capabilities: target by check, devices named only where they differ, changes since the base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradbot.model import CheckName, Report
from gradbot.report import aggregate, text
from gradbot.report.compare import Changes
from gradbot.report.markdown_parts import Detail, MatrixRow

_TITLES = {
    CheckName.BACKWARD.value: "backward",
    CheckName.FORWARD_AD.value: "forward",
    CheckName.DOUBLE_BACKWARD.value: "double",
    CheckName.FORWARD_OVER_BACKWARD.value: "fwd over bwd",
    CheckName.BATCHED_GRAD.value: "vmap",
    CheckName.BATCHED_FORWARD_GRAD.value: "vmap fwd",
    CheckName.UNDEFINED_GRAD.value: "None grads",
    CheckName.GRAD_OUTPUTS.value: "layouts",
    CheckName.GRAD_METADATA.value: "metadata",
    CheckName.NEEDS_INPUT_GRAD.value: "needs grad",
    CheckName.DETERMINISM.value: "deterministic",
    CheckName.SIDE_EFFECTS.value: "no side effects",
    CheckName.REGISTRATION.value: "registration",
    CheckName.REFERENCE.value: "reference",
    CheckName.COMPILED.value: "compiled",
}
"""Checks as titles of the columns of a capability table."""

_SYMBOLS = {
    "ok": "✅",
    "wrong": "❌",
    "broken": "💥",
    "inconclusive": "❔",
    "expected": "🔶",
    "unsupported": "–",
    "skipped": "·",
}
LEGEND = (
    "✅ right · ❌ wrong · 💥 raised, died, hung · ❔ inconclusive · 🔶 expected failure · – unsupported · · skipped"
)


def title_of(check: str) -> str:
    """A check as the title of a column."""
    return _TITLES.get(check, text.one_line(check, 30))


def capabilities(
    report: Report, changes: Changes, detail: Detail
) -> tuple[tuple[str, ...], tuple[MatrixRow, ...], int]:
    grid = aggregate.matrix(report)
    changed = {(each.target, each.check, each.device): each.before for each in changes.capabilities}
    devices: dict[str, list[str]] = {}
    for target, _, device in grid.cells:
        devices.setdefault(target, [])
        if device not in devices[target]:
            devices[target].append(device)
    rows: list[MatrixRow] = []
    right = 0
    for target in grid.targets:
        states = {grid.cells.get((target, check, device)) for check in grid.checks for device in devices[target]}
        trouble = bool(states & {"wrong", "broken", "inconclusive", "expected"})
        if not trouble and not detail.right_rows:
            right += 1
            continue
        cells = tuple(_cell(grid, changed, target, check, sorted(devices[target])) for check in grid.checks)
        rows.append(MatrixRow(target=text.cut_middle(text.one_line(target), detail.name), cells=cells))
    return tuple(title_of(check) for check in grid.checks[:20]), tuple(rows), right


def _cell(
    grid: aggregate.Matrix, changed: Mapping[tuple[str, str, str], str], target: str, check: str, devices: Sequence[str]
) -> str:
    shown: dict[str, list[str]] = {}
    for device in devices:
        state = grid.cells.get((target, check, device))
        if state is None:
            continue
        before = changed.get((target, check, device))
        word = ""
        if before is not None:
            word = " fixed" if state == "ok" and before in ("wrong", "broken") else f" was {_SYMBOLS[before]}"
        shown.setdefault(_SYMBOLS[state] + word, []).append(device)
    if len(shown) == 1:
        return next(iter(shown))
    return " ".join(f"{symbol} {text.one_line('/'.join(names), 40)}" for symbol, names in shown.items())
