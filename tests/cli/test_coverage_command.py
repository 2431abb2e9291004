"""`gradbot coverage`: what of the discovered targets is checked, by inputs from where, and what is not and why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gradbot import codec
from gradbot.cli import main
from gradbot.model import (
    Case,
    CaseResult,
    CheckResult,
    InputSource,
    Location,
    Outcome,
    Report,
    Target,
    TargetKind,
    Unchecked,
)


def target(name: str, line: int) -> Target:
    return Target(id=f"p:{name}", kind=TargetKind.FUNCTION, location=Location(path="p/ops.py", line=line))


def result(name: str, source: InputSource, outcome: Outcome) -> CaseResult:
    case = Case(id=f"p:{name}[{source.value}]", target=f"p:{name}", name=source.value, source=source, reference="")
    return CaseResult(case=case, outcome=outcome, checks=(CheckResult(check="backward", outcome=outcome),))


REPORT = Report(
    targets=(
        target("Declared", 3),
        target("Recorded", 9),
        target("Wrong", 15),
        target("Skipped", 21),
        target("No", 27),
    ),
    results=(
        result("Declared", InputSource.RECORDED, Outcome.PASSED),
        result("Declared", InputSource.DECLARED, Outcome.PASSED),
        result("Recorded", InputSource.RECORDED, Outcome.PASSED),
        result("Wrong", InputSource.DECLARED, Outcome.FAILED),
        replace(result("Skipped", InputSource.RECORDED, Outcome.SKIPPED), reason="process_group"),
    ),
    unchecked=(
        Unchecked(target="p:Skipped", reason="process_group"),
        Unchecked(target="p:No", reason="no_inputs"),
    ),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "report.json"
    file.write_text(codec.dumps(REPORT))
    return file


def test_the_text_counts_by_source_and_places_the_rest(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["coverage", "--report", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 of 5 targets are checked (60%): 2 by declared inputs, 1 by recorded inputs"
    assert lines[2:] == [
        "not checked:",
        "  p/ops.py:27 p:No: no inputs are known; declare cases, or record them with gradbot record -- pytest",
        "  p/ops.py:21 p:Skipped: the function needs a process group",
    ]


@pytest.mark.parametrize(("percent", "code"), [("60", 0), ("60.1", 1)])
def test_a_share_below_the_asked_one_fails(
    path: Path, percent: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["coverage", "--report", str(path), "--fail-under", percent]) == code
    assert ("--fail-under asks for 60.1%" in capsys.readouterr().err) is bool(code)


def test_json_has_the_same_figures(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["coverage", "--report", str(path), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["targets"], found["checked"], found["percent"]) == (5, 3, 60.0)
    assert found["by_source"] == {"declared": 2, "recorded": 1}
    assert [each["target"] for each in found["uncovered"]] == ["p:No", "p:Skipped"]


def test_json_to_a_file_leaves_the_text(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["coverage", "--report", str(path), "--json", str(path.parent / "c.json")]) == 0
    assert json.loads((path.parent / "c.json").read_text())["checked"] == 3
    assert "3 of 5" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "{}", "nonsense"])
def test_what_is_no_report_is_one_clear_line(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.json"
    if content is not None:
        file.write_text(content)
    assert main.run(["coverage", "--report", str(file)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert str(file) in line
