"""Annotations: at the method at fault, the ten most important of each level, nothing that ends a command early."""

from __future__ import annotations

import re
from dataclasses import replace

import example_run
from hypothesis import given
from strategies import WHOLE_REPORTS, hostile_text, reports

from gradbot.model import Location, Report
from gradbot.report import compare
from gradbot.report.annotations import Annotation, chosen, collect, command, render

HEAD, BASE = example_run.head(), example_run.base()
CHANGES = compare.compare(HEAD, BASE)
COMMAND = re.compile(r"::(error|warning|notice) (?:[a-zA-Z]+=[^:,\r\n]*)(?:,[a-zA-Z]+=[^:,\r\n]*)*::[^\r\n]*")


@WHOLE_REPORTS
@given(reports())
def test_any_report_gives_one_command_a_line_and_ten_a_level(report: Report) -> None:
    lines = render(report).split("\n")[:-1]
    assert all(COMMAND.fullmatch(line) for line in lines)
    for level in ("error", "warning", "notice"):
        assert sum(line.startswith(f"::{level} ") for line in lines) <= 10
    for each in collect(report):
        assert not each.path.startswith("/")
        assert ".." not in each.path.split("/")
        assert each.end_line >= each.line >= 1


@given(hostile_text(8), hostile_text(8))
def test_a_command_can_be_read_back(title: str, message: str) -> None:
    line = command(Annotation(level="error", title=title, message=message, path="a.py", line=3, end_line=4))
    head, _, data = line.removeprefix("::").partition("::")
    shown = dict(part.partition("=")[::2] for part in head.removeprefix("error ").split(","))
    assert unescaped(data) == message
    assert unescaped(shown["title"]) == title
    assert (shown["file"], shown["line"], shown["endLine"]) == ("a.py", "3", "4")


def unescaped(value: str) -> str:
    for code, character in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        value = value.replace(code, character)
    return value


def test_new_failures_are_errors_known_ones_warnings_the_rest_notices() -> None:
    levels = {(each.title.split()[0], each.level) for each in collect(HEAD, CHANGES)}
    assert ("kernels.softcap:SoftCap", "error") in levels
    assert ("kernels.mix:ScatterMix", "warning") in levels
    assert ("kernels.act:HardGate", "notice") in levels


def test_the_first_is_the_most_important_at_the_method_at_fault() -> None:
    first = collect(HEAD, CHANGES)[0]
    assert (first.path, first.line, first.end_line) == ("kernels/softcap.py", 40, 45)
    assert first.message.startswith("backward is 0.5× the true derivative, everywhere\n")
    assert "gradbot check kernels.softcap:SoftCap" in first.message


def test_what_is_over_the_limit_is_counted_in_the_last() -> None:
    some = [Annotation(level="error", title=str(i), message="m") for i in range(25)]
    kept = chosen(some)
    assert [each.title for each in kept[:9]] == [str(i) for i in range(9)]
    assert kept[9].message.startswith("16 more annotations")
    assert len(kept) == 10


def test_a_place_outside_the_repository_is_left_out() -> None:
    target = replace(HEAD.targets[0], methods={"backward": Location(path="/usr/lib/x.py", line=1)})
    result = replace(HEAD.results[0], checks=())
    report = replace(HEAD, targets=(target,), results=(result,), findings=())
    assert {each.path for each in collect(report)} == {""}


def test_a_missing_shard_is_an_error() -> None:
    assert any("cuda-2" in each.message and each.level == "error" for each in collect(HEAD, CHANGES))
