"""JUnit XML: valid whatever the report holds, and read alike by everybody."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import example_run
import junitparser
import pytest
import xmlschema
import xunitparser
from hypothesis import given, settings
from junit2htmlreport.parser import Junit
from strategies import WHOLE_REPORTS, hostile_text, reports

from gradbot.model import Attempts, Crash, Outcome, Report
from gradbot.report import junit

XSD = Path(__file__).parent.parent / "vendor" / "junit" / "junit-10.xsd"
READERS = Path(__file__).parent / "junit_readers.mjs"


@cache
def schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(str(XSD))


def counts(text: str) -> tuple[int, int, int, int]:
    """Tests, failures, errors and skipped ones, as the testcases have them."""
    cases = list(ElementTree.fromstring(text).iter("testcase"))
    tags = Counter(child.tag for case in cases for child in case)
    return len(cases), tags["failure"], tags["error"], tags["skipped"]


def found(text: str, name: str) -> ElementTree.Element:
    return next(each for each in ElementTree.fromstring(text).iter("testcase") if each.get("name") == name)


@WHOLE_REPORTS
@given(reports())
def test_any_report_is_valid_in_the_strict_family(report: Report) -> None:
    schema().validate(junit.render(report, "xunit2"))


@WHOLE_REPORTS
@given(reports())
def test_counters_are_what_the_testcases_add_up_to(report: Report) -> None:
    root = ElementTree.fromstring(junit.render(report))
    total = 0.0
    for suite in root.iter("testsuite"):
        tags = Counter(child.tag for case in suite.iter("testcase") for child in case)
        assert int(suite.get("tests", "")) == len(list(suite.iter("testcase")))
        assert int(suite.get("failures", "")) == tags["failure"]
        assert int(suite.get("errors", "")) == tags["error"]
        assert int(suite.get("skipped", "")) == tags["skipped"]
        times = [float(case.get("time", "")) for case in suite.iter("testcase")]
        assert float(suite.get("time", "")) == pytest.approx(sum(times), abs=1e-3)
        total += float(suite.get("time", ""))
    assert float(root.get("time", "")) == pytest.approx(total, abs=1e-3)
    assert all(
        len([c for c in case if c.tag in ("failure", "error", "skipped")]) <= 1 for case in root.iter("testcase")
    )


@settings(deadline=None)
@given(hostile_text(12))
def test_text_is_valid_xml_and_nothing_but_the_forbidden_changes(value: str) -> None:
    element = ElementTree.Element("a", {"b": junit.xml_text(value)})
    element.text = junit.xml_text(value)
    back = ElementTree.fromstring(ElementTree.tostring(element, encoding="unicode"))
    assert (back.text or "") == junit.xml_text(value)
    if value.isprintable():
        assert junit.xml_text(value) == value


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x00", "#x00"),
        ("\x1b[31m", "#x1B[31m"),
        ("\x7f", "#x7F"),
        ("\ud800", "#xD800"),
        ("\ufffe", "#xFFFE"),
        ("\t", "\t"),
    ],
)
def test_forbidden_characters_show_by_number(raw: str, shown: str) -> None:
    assert junit.xml_text(raw) == shown


@pytest.mark.parametrize("family", junit.FAMILIES)
def test_every_reader_counts_the_same(family: str, tmp_path: Path) -> None:
    text = junit.render(example_run.head(), family)
    tests, failures, errors, skipped = counts(text)
    path = tmp_path / "junit.xml"
    path.write_text(text, encoding="utf-8")

    document = junitparser.JUnitXml.fromfile(str(path))
    assert (document.tests, document.failures, document.errors) == (tests, failures, errors)
    assert sum(suite.skipped for suite in document) == skipped

    with path.open(encoding="utf-8") as stream:
        _, result = xunitparser.parse(stream)
    assert (result.testsRun, len(result.failures), len(result.errors), len(result.skipped)) == (
        tests,
        failures,
        errors,
        skipped,
    )

    suites = Junit(str(path)).suites
    assert sum(len(suite.all()) for suite in suites) == tests
    assert sum(len(suite.failed()) for suite in suites) == failures + errors
    assert sum(len(suite.skipped()) for suite in suites) == skipped


@pytest.mark.parametrize("family", junit.FAMILIES)
def test_readers_of_the_javascript_world_count_the_same(family: str, tmp_path: Path) -> None:
    modules = os.environ.get("GRADBOT_TEST_NODE_MODULES", "")
    if not shutil.which("node") or not (Path(modules) / "node_modules" / "junit-to-ctrf").is_dir():
        pytest.skip("needs node, and GRADBOT_TEST_NODE_MODULES: a folder with test-results-parser and junit-to-ctrf")
    text = junit.render(example_run.head(), family)
    tests, failures, errors, skipped = counts(text)
    path = tmp_path / "junit.xml"
    path.write_text(text, encoding="utf-8")
    done = subprocess.run(["node", str(READERS), str(path), modules], capture_output=True, text=True, check=True)
    expected = [tests, failures + errors, skipped]
    assert json.loads(done.stdout) == {"test-results-parser": expected, "junit-to-ctrf": expected}


def test_one_testcase_a_case_and_check_with_its_place() -> None:
    text = junit.render(example_run.head())
    case = found(text, "backward[softcap-64x128:cpu:float64]")
    assert case.get("classname") == "kernels.softcap.SoftCap"
    assert (case.get("file"), case.get("line")) == ("kernels/softcap.py", "40")
    assert case[0].tag == "failure"
    assert case[0].get("type") == "jacobian_mismatch_backward"
    assert "again: gradbot check kernels.softcap:SoftCap" in (case[0].text or "")


def test_the_strict_family_has_no_places() -> None:
    assert 'file="' not in junit.render(example_run.head(), "xunit2")


def test_suites_are_named_by_device_and_shard() -> None:
    names = [suite.get("name") for suite in ElementTree.fromstring(junit.render(example_run.head())).iter("testsuite")]
    assert "gradbot cpu (shard merged)" in names
    assert "gradbot cuda:0 (shard merged)" in names
    assert len(set(names)) == len(names)


def test_a_crash_is_an_error_of_the_check_it_struck_with_its_last_output() -> None:
    case = found(junit.render(example_run.head()), "backward[attn-2x8x128:cuda:0:bfloat16]")
    assert [child.tag for child in case] == ["error", "system-out"]
    assert "SIGSEGV" in (case[0].get("message") or "")
    assert "misaligned address" in (case[1].text or "")


def test_what_was_not_checked_is_skipped_with_its_reason() -> None:
    skipped = found(junit.render(example_run.head()), "checked")
    assert skipped[0].tag == "skipped"
    assert "no inputs are known" in (skipped[0].get("message") or "")


def test_a_missing_shard_is_an_error() -> None:
    case = found(junit.render(example_run.head()), "reported")
    assert case.get("classname") == "shard cuda-2"
    assert case[0].tag == "error"


def test_a_failure_that_comes_and_goes_says_how_often() -> None:
    case = found(junit.render(example_run.head()), "backward[hist-4096:cuda:0:float64]")
    assert [child.tag for child in case] == ["failure", "rerunFailure"]
    assert case[1].get("message") == "failed in 3 of 8 runs"


def test_a_pass_after_failures_is_flaky() -> None:
    run = example_run.head()
    rope = next(result for result in run.results if result.case.name == "rope-32x64")
    shaky = replace(rope, attempts=Attempts(runs=3, failures=1))
    text = junit.render(replace(run, results=(shaky,), findings=()))
    assert found(text, "backward[rope-32x64:cpu:float64]")[0].tag == "flakyFailure"
    assert counts(text)[1] == 0


def test_captured_output_is_capped() -> None:
    run = example_run.head()
    crash = Crash(cause="signal", signal="SIGABRT", output_tail="noise\n" * 100_000)
    died = replace(run.results[0], outcome=Outcome.CRASHED, checks=(), crash=crash)
    assert len(junit.render(replace(run, results=(died,)))) < 20_000


def test_another_family_is_refused() -> None:
    with pytest.raises(ValueError, match="expected xunit1 or xunit2"):
        junit.render(example_run.head(), "xunit3")
