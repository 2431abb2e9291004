"""The page: one file, nothing from outside, nothing that a report holds can act."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import example_run
import pytest
from golden import LINKS
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import WHOLE_REPORTS, hostile_text, reports

from gradbot.model import JacobianMap, Report
from gradbot.report import compare, html, html_view

HEAD, BASE = example_run.head(), example_run.base()
PAGE = html.render(HEAD, compare.compare(HEAD, BASE), links=LINKS, sources=example_run.SOURCES)


class Page(HTMLParser):
    """The page's elements with their attributes, and its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.contents: list[tuple[str, dict[str, str | None], str]] = []
        self._inside: tuple[str, dict[str, str | None]] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = (tag, dict(attrs))

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.contents.append((*self._inside, data))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = None


def data_of(page: Page) -> dict[str, object]:
    return {str(attrs["id"]): json.loads(text) for _, attrs, text in page.contents if "id" in attrs}


def test_the_policy_names_the_pages_own_script_and_style_and_nothing_else() -> None:
    page = Page(PAGE)
    policy = next(attrs["content"] or "" for tag, attrs in page.elements if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for word, tag in (("script-src", "script"), ("style-src", "style")):
        named = re.search(rf"{word} 'sha256-([^']+)'", policy)
        content = next(text for kind, attrs, text in page.contents if kind == tag and "type" not in attrs)
        assert named is not None
        assert named.group(1) == base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def test_nothing_is_asked_of_the_network() -> None:
    for tag, attrs in Page(PAGE).elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form" if "action" in attrs else "")
        assert "src" not in attrs
        assert not [name for name in attrs if name.startswith("on")]
        assert "style" not in attrs


@WHOLE_REPORTS
@given(reports())
def test_any_report_makes_a_page_with_our_elements_only(report: Report) -> None:
    page = Page(html.render(report, links=LINKS))
    scripts = [attrs for tag, attrs in page.elements if tag == "script"]
    assert len(scripts) == len(report.results) + 3
    assert sum("type" not in attrs for attrs in scripts) == 1
    assert not [attrs for _, attrs in page.elements if any(name.startswith("on") for name in attrs)]
    data = data_of(page)
    assert len(data["data"]) == len(report.results)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.dictionaries(hostile_text(2), hostile_text(4)))
def test_json_cannot_leave_its_element(value: dict[str, str]) -> None:
    text = str(html.json_for_html(value))
    assert not set(text) & set("<>&")
    assert json.loads(text) == value


def test_the_list_is_in_order_of_importance() -> None:
    data = data_of(Page(PAGE))["data"]
    assert isinstance(data, list)
    assert data[0]["target"] == "kernels.softcap:SoftCap"
    assert [each["class"] for each in data[:6]] == ["new"] * 6
    assert data[-1]["outcome"] == "passed"


def test_a_case_holds_every_picture_that_its_evidence_allows() -> None:
    first = data_of(Page(PAGE))["d0"]
    assert isinstance(first, dict)
    finding = next(each for each in first["checks"] if each["check"] == "backward")["findings"][0]
    assert [each["what"] for each in finding["evidence"]["maps"]] == ["analytical", "numerical", "error"]
    assert [each["side"] for each in finding["evidence"]["profiles"]] == ["input", "output"]
    assert len(finding["evidence"]["entries"]["rows"]) == 4
    assert finding["source"]["blamed"] == [40, 45]
    assert any("0.5 * grad_output" in line for line in finding["source"]["lines"])
    assert first["command"].startswith("gradbot check kernels.softcap:SoftCap")


def test_sources_that_do_not_reach_the_place_are_left_out() -> None:
    page = html.render(HEAD, sources={"kernels/softcap.py": "one line"})
    first = data_of(Page(page))["d0"]
    assert isinstance(first, dict)
    assert all(finding["source"] is None for check in first["checks"] for finding in check["findings"])


@given(st.lists(st.lists(st.floats(-1e300, 1e300) | st.just(math.nan), min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_map_keeps_sign_and_size_of_every_block(values: list[list[float]]) -> None:
    picture = JacobianMap(what="error", rows=4, columns=3, values=tuple(map(tuple, values)))
    encoded = html_view.encode_map(picture)
    levels = base64.b64decode(encoded["levels"])
    assert len(levels) == 3 * len(values)
    for level, value in zip(levels, [v for row in values for v in row], strict=True):
        if math.isnan(value):
            assert level == 128
        elif level:
            shown = encoded["largest"] * 10 ** (((level & 127) - 127) / html_view.LEVELS_A_DECADE)
            assert (level > 128) == (value < 0)
            assert shown == pytest.approx(abs(value), rel=0.08)
        else:
            assert abs(value) <= encoded["largest"] * 1e-7


def test_pictures_are_kept_for_the_most_important_cases_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_view, "MOST_PICTURED", 1)
    page = html.render(HEAD, compare.compare(HEAD, BASE))
    assert "The pictures of 2 less important failures are left out" in page
    assert page.count('"maps":') == 1


@pytest.mark.parametrize("value", [1.7976931348623157e308, -1.7976931348623157e308])
def test_numbers_that_round_to_infinity_stay_numbers(value: float) -> None:
    assert html_view._rounded(value) == value
