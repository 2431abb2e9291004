"""A report on a terminal: the same truths in few columns and many, with and without colour."""

from __future__ import annotations

import re
from dataclasses import replace

import example_run
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from strategies import WHOLE_REPORTS, reports

from gradbot.model import JacobianMap, Report
from gradbot.report import aggregate, compare, heatmap, terminal

HEAD, BASE = example_run.head(), example_run.base()
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def plain(text: str) -> str:
    return ANSI.sub("", text)


def is_command(line: str) -> bool:
    return line.startswith(("  again: ", "  more: "))


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_lines_fit_except_for_commands_which_are_never_broken(width: int) -> None:
    text = terminal.render(HEAD, width=width, verbose=True)
    assert [line for line in text.splitlines() if cell_len(line) > width and not is_command(line)] == []
    assert (
        "  again: gradbot check mylib::ragged_sum --case batch-16x128 --device cuda:0 --dtype float64 --seed 7\n"
        in text
    )


def test_colour_changes_no_word() -> None:
    for render in (
        lambda colour: terminal.render(HEAD, colour=colour),
        lambda colour: terminal.render_case(HEAD.results[0], colour=colour),
    ):
        assert "\x1b[" in render(True)
        assert "\x1b" not in render(False)
        stripped = [line.rstrip() for line in plain(render(True)).splitlines()]
        assert stripped == render(False).splitlines()


@WHOLE_REPORTS
@given(reports(), st.integers(30, 160))
def test_any_report_shows_without_control_characters(report: Report, width: int) -> None:
    for text in (
        terminal.render(report, width=width, verbose=True),
        plain(terminal.render(report, width=width, colour=True)),
        *(terminal.render_case(each, width=width) for each in report.results),
    ):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)


@pytest.mark.parametrize("width", [80, 130])
def test_everything_that_fails_has_a_line_with_its_place(width: int) -> None:
    text = " ".join(terminal.render(HEAD, width=width).split())
    for item in aggregate.items(HEAD):
        assert item.target in text
    assert "kernels/softcap.py:40" in text
    assert "no inputs are known" in text


def test_the_worst_failure_is_shown_with_entries_picture_and_command() -> None:
    text = terminal.render(HEAD, width=80)
    detail = text[text.index("\nkernels.softcap:SoftCap · softcap-64x128 · backward") :]
    assert "analytical = 0.5 × numerical (residual 3e-10 over 8,192 × 8,192 entries)" in detail
    assert "0.4204  0.8408 ±1e-9     8.5e-4" in detail
    assert "█" in detail
    assert "gradbot explain GB101" in detail


def test_the_last_line_counts_targets() -> None:
    last = " ".join(terminal.render(HEAD, width=200, files=("report.json",)).splitlines()[-2].split())
    assert last.startswith("2 right, 5 wrong, 3 broken, 1 nondeterministic, ")
    assert last.endswith("1 min 48 s · report.json")


def test_a_missing_shard_and_an_interruption_are_said() -> None:
    report = replace(HEAD, run=replace(HEAD.run, interrupted=True))
    text = terminal.render(report)
    assert "shard cuda-2 never reported" in text
    assert "the run was interrupted" in text


def test_without_verbose_long_lists_say_how_many_more() -> None:
    many = [
        replace(HEAD.results[-1], case=replace(HEAD.results[-1].case, target=f"k:T{i}", id=str(i))) for i in range(200)
    ]
    text = terminal.render(Report(results=tuple(many)))
    assert "and 170 more: --verbose shows all" in text
    assert "more:" not in terminal.render(Report(results=tuple(many)), verbose=True)


def test_compared_with_a_base_every_failure_says_its_class() -> None:
    changes = compare.compare(HEAD, BASE)
    text = terminal.render(HEAD, width=80, told=changes.told)
    assert re.search(r"float64 on cpu and cuda:0 · new\n", text)
    assert "· known\n" in text
    assert "no base to compare with" not in text
    assert any(line.startswith("fixed: kernels.rope:Rope double_backward") for line in terminal.changes_lines(changes))


def test_one_case_in_full_has_every_check() -> None:
    text = terminal.render_case(HEAD.results[0])
    for check in HEAD.results[0].checks:
        assert re.search(rf"^[✗✓–~!] {check.check}  ", text, re.MULTILINE)
    assert "A relative error of 1e-5 would have been seen in 100% of the output rows" in " ".join(text.split())


# Heat maps in characters


def picture(values: list[list[float]]) -> JacobianMap:
    return JacobianMap(what="error", rows=len(values), columns=len(values[0]), values=tuple(map(tuple, values)))


def test_a_shade_a_decade() -> None:
    drawn = heatmap.render(picture([[1.0, 0.1, 0.01, 0.001, 1e-5, 0.0]]), width=6)
    assert drawn.lines == ("█▓▒░··",)


def test_small_maps_are_drawn_twice_as_wide() -> None:
    assert heatmap.render(picture([[1.0, 0.0], [0.0, 1.0]])).lines == ("██··", "··██")


def test_what_is_not_finite_stands_out() -> None:
    drawn = heatmap.render(picture([[1.0, float("nan"), float("inf")]]), width=3)
    assert drawn.lines == ("█!!",)
    assert "! not finite" in drawn.caption


@settings(deadline=None)
@given(
    st.integers(1, 70).flatmap(
        lambda n: st.lists(st.lists(st.floats(), min_size=n, max_size=n), min_size=1, max_size=70)
    ),
    st.integers(1, 80),
    st.integers(1, 20),
)
def test_any_map_fits_and_loses_no_largest_value(values: list[list[float]], width: int, height: int) -> None:
    drawn = heatmap.render(picture(values), width=width, height=height)
    assert len(drawn.lines) <= height
    assert {len(line) for line in drawn.lines} == {len(drawn.lines[0])}
    assert len(drawn.lines[0]) <= width
    finite = [v for row in values for v in row if v and abs(v) < float("inf")]
    if finite and len(finite) == len([v for row in values for v in row]):
        assert any("█" in line for line in drawn.lines)
