"""The comment and the job summary: what stands in them, always within GitHub's limits, and harmless."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import cmarkgfm
import example_run
import pytest
from cmarkgfm.cmark import Options
from golden import LINKS
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import WHOLE_REPORTS, hostile_text, reports

from gradbot.errors import UsageError
from gradbot.model import CaseResult, Note, Report, ShardRun
from gradbot.report import compare, markdown, markdown_escape

HEAD, BASE = example_run.head(), example_run.base()
CHANGES = compare.compare(HEAD, BASE)


def to_html(text: str) -> str:
    return cmarkgfm.github_flavored_markdown_to_html(text, options=Options.CMARK_OPT_UNSAFE)


class Structure(HTMLParser):
    """The elements of rendered markdown, and whether they are balanced."""

    VOID = frozenset({"br", "hr", "img", "input"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"code", "pre"} & set(self.open):
            self.texts.append(data)


ALLOWED = {
    *("a", "blockquote", "br", "code", "details", "h2", "h3", "h4", "li", "p", "pre", "span", "strong", "summary"),
    *("table", "tbody", "td", "th", "thead", "tr", "ul"),
}


def assert_harmless(text: str) -> None:
    """Balanced, no element or link that we did not make, nobody pinged, nothing cross-referenced."""
    shown = Structure(to_html(text))
    assert not shown.open
    assert set(shown.tags) <= ALLOWED, set(shown.tags) - ALLOWED
    assert shown.tags.count("details") == shown.tags.count("summary")
    assert all(link.startswith(("https://github.com/acme/", "#")) for link in shown.links), shown.links
    words = "".join(shown.texts)
    assert not re.search(r"@[A-Za-z0-9]", words)
    assert not re.search(r"#\d", words)
    assert not re.search(r"\bGH-\d", words)
    assert "<!--" not in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)


@WHOLE_REPORTS
@given(reports(), reports(), st.sampled_from([65_536, 20_000, 3_000, 700, 150, 20]))
def test_any_comment_is_within_its_limit_and_harmless(report: Report, base: Report, limit: int) -> None:
    text = markdown.comment(report, compare.compare(report, base), links=LINKS, limit=limit)
    assert len(text) <= limit
    assert_harmless(text)


@WHOLE_REPORTS
@given(reports(), st.sampled_from([1_000_000, 5_000, 900, 100]))
def test_any_summary_is_within_its_limit_in_bytes_and_harmless(report: Report, limit: int) -> None:
    text = markdown.summary(report, links=LINKS, limit=limit)
    assert len(text.encode()) <= limit
    assert_harmless(text)


def test_a_fact_that_is_a_number_starts_no_list() -> None:
    result = HEAD.results[0]
    findings = tuple(replace(each, diagnosis=None, evidence=None, details={}) for each in result.checks[0].findings)
    bare = replace(result.checks[0], findings=findings, evidence=None)
    failing = replace(result, checks=(bare,), notes=(Note(code="discovery", details={"message": "2281"}),))
    text = markdown.comment(replace(HEAD, results=(failing,)), links=LINKS)
    assert "\n\n2281" in text
    assert_harmless(text)


def many(result: CaseResult, number: int) -> Report:
    """A report in which one case fails in so many targets."""
    cases = [
        replace(result.case, id=f"{result.case.id}{i}", target=f"{result.case.target}{i:05}") for i in range(number)
    ]
    return replace(HEAD, results=tuple(replace(result, case=case) for case in cases))


@pytest.mark.parametrize("number", [1, 10, 300, 3_000])
def test_huge_reports_fit_and_say_what_was_left_out(number: int) -> None:
    report = many(HEAD.results[0], number)
    for text in (markdown.comment(report, links=LINKS), markdown.summary(report, links=LINKS, limit=100_000)):
        assert len(text) <= 65_536 or len(text.encode()) <= 100_000
        assert_harmless(text)
        assert ("Left out:" in text) == (number > 10)


def test_the_verdict_stands_first_and_survives_every_limit() -> None:
    verdict = "4 new wrong gradients in 15 checked targets"
    for limit in (65_536, 9_000, 4_000, 2_000, 500, 150):
        text = markdown.comment(HEAD, CHANGES, links=LINKS, limit=limit)
        assert verdict in text.splitlines()[0]


def shorter_and_shorter() -> list[str]:
    """The comment at every stage, each a character too long for the next limit."""
    texts = [markdown.comment(HEAD, CHANGES, links=LINKS)]
    while "Left out" in texts[-1] or len(texts) == 1:
        texts.append(markdown.comment(HEAD, CHANGES, links=LINKS, limit=len(texts[-1]) - 1))
    return texts


def test_passing_rows_go_first_then_details_then_single_failures() -> None:
    full, *cut, bare = shorter_and_shorter()
    assert "RmsNorm` | ✅" in full
    assert not [text for text in cut if "RmsNorm` | ✅" in text]
    headings = [text.count("####") for text in (full, *cut)]
    assert headings == sorted(headings, reverse=True)
    assert headings[0] == headings[1] == 7
    named = ["SoftCap" in text for text in cut]
    assert named == sorted(named, reverse=True)
    assert named.count(True) >= 3
    assert all("Shortened to fit" in text and "full report" in text for text in cut)
    assert len(bare) < 200


def test_new_failures_stand_before_everything_else() -> None:
    text = markdown.comment(HEAD, CHANGES, links=LINKS)
    assert text.index("### New failures") < text.index("#### `kernels.softcap:SoftCap`") < text.index("### Also")
    assert text.index("kernels.softcap:SoftCap") < text.index("kernels.mix:ScatterMix")


def test_a_failure_says_what_where_how_sure_and_how_to_see_it_again() -> None:
    text = markdown.comment(HEAD, CHANGES, links=LINKS)
    part = text[text.index("#### `kernels.softcap:SoftCap`") : text.index("#### `kernels.norm:RmsNorm`")]
    assert "backward is 0.5× the true derivative, everywhere" in part
    assert f"[`kernels/softcap.py:40`]({LINKS.blob}/kernels/softcap.py#L40-L45)" in part
    assert "certain" in part
    assert "**new**: passes on the base" in part
    assert "| `[3, 127]` | `[3, 127]` | 0.4204 | 0.8408 ± 1e-9 | 8.5e-4 |" in part
    assert "█" in part
    assert "gradbot check kernels.softcap:SoftCap --case softcap-64x128 --device cpu --dtype float64 --seed 7" in part


def test_a_known_failure_shows_its_evidence() -> None:
    text = markdown.comment(HEAD, CHANGES, links=LINKS)
    assert "1 known nondeterministic gradient" in text
    assert "(also fails on the base)" in text
    assert "differs by up to 3e-7 in 6 of 8 repeats" in text


def test_without_a_base_nothing_is_called_new_or_known() -> None:
    text = markdown.comment(HEAD, links=LINKS)
    assert "No base to compare with" in text
    assert "New failures" not in text
    assert "known nondeterministic" not in text
    assert "**known**" not in text
    assert "**new**" not in text


def test_tables_have_as_many_cells_as_columns() -> None:
    for text in (markdown.comment(HEAD, CHANGES, links=LINKS), markdown.summary(HEAD, CHANGES, links=LINKS)):
        for table in re.findall(r"<table>.*?</table>", to_html(text), re.DOTALL):
            rows = re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
            assert len(rows) > 1
            assert len({len(re.findall(r"<t[hd]", row)) for row in rows}) == 1


def test_the_capability_table_names_devices_only_where_they_differ() -> None:
    softcap = HEAD.results[0]
    right = replace(example_run.base().results[1], case=replace(HEAD.results[1].case))
    text = markdown.comment(replace(HEAD, results=(softcap, right)), links=LINKS)
    row = next(line for line in text.splitlines() if line.startswith("| `kernels.softcap:SoftCap` |"))
    assert row.split("|")[2].strip() == "❌ cpu ✅ cuda:0"
    assert row.split("|")[3].strip() == "–"


def test_nothing_wrong_is_green_and_short() -> None:
    rope = next(result for result in HEAD.results if result.case.name == "rope-32x64")
    targets = tuple(target for target in HEAD.targets if target.id == rope.case.target)
    quiet = replace(
        HEAD, results=(rope,), unchecked=(), findings=(), problems=(), targets=targets, shards_seen=HEAD.shard.expected
    )
    text = markdown.comment(quiet)
    assert text.startswith("## ✅ gradbot: all gradients are right in 1 checked target\n")
    assert len(text) < 1_000


def test_nothing_checked_is_not_green() -> None:
    assert markdown.comment(Report()).startswith("## ❔ gradbot: nothing was checked\n")


def test_a_forks_report_is_marked_as_its_own_word() -> None:
    assert "that fork's word" in markdown.comment(HEAD, CHANGES, links=LINKS, fork=True)
    assert "fork" not in markdown.comment(HEAD, CHANGES, links=LINKS)


def test_the_summary_says_what_it_ran_on() -> None:
    assert "NVIDIA H100" in markdown.summary(HEAD, CHANGES, links=LINKS).split("What it ran on")[1]


def test_a_repository_overrides_single_blocks(tmp_path: Path) -> None:
    template = '{% extends "gradbot/comment.md.j2" %}{% block verdict %}# ours: {{ view.verdict }}\n{% endblock %}'
    (tmp_path / "comment.md.j2").write_text(template)
    text = markdown.comment(HEAD, CHANGES, links=LINKS, templates=tmp_path)
    assert text.startswith("# ours: 4 new wrong gradients")
    assert "### New failures" in text


@pytest.mark.parametrize("template", ["{{ nothing }}", "{% block %}", "{{ ''.__class__.__mro__ }}"])
def test_a_template_that_does_not_work_is_one_clear_line(tmp_path: Path, template: str) -> None:
    (tmp_path / "comment.md.j2").write_text(template)
    with pytest.raises(UsageError, match=r"the template comment\.md\.j2 does not work"):
        markdown.comment(HEAD, templates=tmp_path)


def test_a_folder_of_templates_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        markdown.comment(HEAD, templates=tmp_path / "none")


@settings(deadline=None)
@given(hostile_text(12))
@example("a\\|b")
@example("www.x.y http://a.b mailto:c@d")
@example("1. x")
@example("- [x] done")
@example("\xf0http://a.b \xf0www.x.y")
def test_escaped_text_shows_as_it_stands_and_does_nothing(value: str) -> None:
    shown = Structure(
        to_html(f"| a |\n| --- |\n| x {markdown_escape.escape(value)} |\n\n{markdown_escape.escape(value)}\n")
    )
    assert set(shown.tags) <= {"table", "thead", "tbody", "tr", "th", "td", "p", "span"}, shown.tags
    assert shown.tags.count("tr") == 2
    assert shown.tags.count("td") == 1
    assert not shown.links


@settings(deadline=None)
@given(hostile_text(12))
@example("`")
@example("a``b`")
@example("|")
def test_code_stays_code(value: str) -> None:
    shown = Structure(to_html(f"| a |\n| --- |\n| {markdown_escape.code(value)} |\n"))
    assert shown.tags == ["table", "thead", "tr", "th", "tbody", "tr", "td", "code"]


@settings(deadline=None)
@given(hostile_text(12))
@example("```\n# out")
def test_a_fence_holds_whatever_it_holds(value: str) -> None:
    shown = Structure(to_html(f"{markdown_escape.fenced(value)}\n\nafter\n"))
    assert shown.tags == ["pre", "code", "p"]
    assert "".join(shown.texts).strip() == "after"


@settings(deadline=None)
@given(hostile_text(12))
def test_a_summary_line_stays_one_element(value: str) -> None:
    fold = f"{markdown_escape.in_html(value)} {markdown_escape.html_code(value)}"
    html = to_html(f"<details><summary>{fold}</summary>\n\n</details>\n")
    assert set(Structure(html).tags) <= {"details", "summary", "code", "span", "p"}


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "//evil", "https://a\u202eb", ""])
def test_only_links_into_the_web_are_links(url: str) -> None:
    assert markdown_escape.link(markdown_escape.Safe("x"), url) == "x"


def test_a_link_cannot_be_ended_early() -> None:
    assert markdown_escape.link(markdown_escape.Safe("x"), "https://a/b) [y](c") == "[x](https://a/b%29%20%5By%5D%28c)"


def test_a_command_with_control_characters_is_left_out() -> None:
    case = replace(HEAD.results[0].case, name="a\x1b[2Jb")
    report = replace(HEAD, results=(replace(HEAD.results[0], case=case),), findings=())
    assert "gradbot check" not in markdown.comment(report, links=LINKS)


def test_a_shard_that_was_cut_short_is_named() -> None:
    cut = ShardRun(name="cuda-1", interrupted=True)
    report = replace(HEAD, run=replace(HEAD.run, interrupted=True), shard_runs=(ShardRun(name="cpu"), cut))
    assert "The run of shard cuda-1 was interrupted: what is missing here is not checked." in markdown.comment(report)
