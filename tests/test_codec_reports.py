"""Reports survive the way through JSON, and the committed schema says the same as the codec."""

from __future__ import annotations

import dataclasses
import json

import example_run
import pytest
from hypothesis import given
from jsonschema import Draft202012Validator
from strategies import WHOLE_REPORTS, reports

from gradbot import codec
from gradbot.codec import CodecError
from gradbot.model import Report


@WHOLE_REPORTS
@given(reports())
def test_a_report_comes_back_as_it_was_written(report: Report) -> None:
    text = codec.dumps(report)
    assert codec.dumps(codec.loads(text, Report)) == text  # compared as text, for NaN is not equal to itself


@WHOLE_REPORTS
@given(reports())
def test_what_the_codec_writes_is_valid_by_the_schema(report: Report) -> None:
    Draft202012Validator(codec.schema()).validate(json.loads(codec.dumps(report)))


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(codec.schema())


def test_the_example_run_comes_back_equal() -> None:
    for report in (example_run.head(), example_run.base()):
        assert codec.loads(codec.dumps(report), Report) == report


def _changed(**fields: object) -> str:
    raw = json.loads(codec.dumps(example_run.head()))
    return json.dumps({**raw, **fields})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", "not JSON"),
        ("[]", "expected Report"),
        (_changed(schema_version=2), "schema_version is 2"),
        (_changed(schema_version=True), "schema_version"),
        (_changed(unknown=1), "unknown key 'unknown'"),
        (_changed(results=None), r"\$\.results"),
        (_changed(run={"seconds": "1"}), r"\$\.run\.seconds"),
        (_changed(run={"seconds": True}), r"\$\.run\.seconds"),
        (_changed(run={"attempt": 1.5}), r"\$\.run\.attempt"),
        (_changed(results=[{"case": {}}]), r"\$\.results\[0\]\.case: Case lacks"),
        ('{"schema_version": 1, "schema_version": 1}', "stands twice"),
        ('{"schema_version": 1, "run": {"seconds": NaN}}', "NaN is not JSON"),
    ],
)
def test_anything_else_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(CodecError, match=place):
        codec.loads(text, Report)


@pytest.mark.parametrize("caps", [{"bytes": 100}, {"values": 10}, {"depth": 3}, {"string": 4}])
def test_caps_hold(caps: dict[str, int]) -> None:
    with pytest.raises(CodecError, match=r"larger|more than|deeper|longer"):
        codec.loads(codec.dumps(example_run.head()), Report, caps=dataclasses.replace(codec.Caps(), **caps))
