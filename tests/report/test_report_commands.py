"""The commands that read a report: report, baseline, show, explain."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import example_run
import pytest

from gradbot import codec
from gradbot.cli.main import run

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gradbot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a folder that holds head.json, base.json and .gradbot/report.json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / ".gradbot").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.gradbot]\n")
    for name, report in (("head.json", example_run.head()), ("base.json", example_run.base())):
        (tmp_path / name).write_text(codec.dumps(report))
    (tmp_path / ".gradbot" / "report.json").write_text(codec.dumps(example_run.head()))

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_report_shows_and_returns_the_verdict(gradbot: Run) -> None:
    code, out, _ = gradbot("report", "head.json")
    assert code == 1
    assert "backward is 0.5× the true derivative" in out
    assert gradbot("report", "head.json", "--fail-on", "nothing")[0] == 0
    assert gradbot("report", ".gradbot")[0] == 1


def test_report_compares_with_a_base(gradbot: Run) -> None:
    _, out, _ = gradbot("report", "head.json", "--base", "base.json")
    assert "· new" in out
    assert "fixed: kernels.rope:Rope double_backward" in out
    assert gradbot("report", "base.json", "--base", "base.json", "--fail-on", "new-failures")[0] == 0


def test_report_writes_every_form(gradbot: Run, tmp_path: Path) -> None:
    source = tmp_path / "kernels" / "softcap.py"
    source.parent.mkdir()
    source.write_text(example_run.SOURCES["kernels/softcap.py"])
    names = {"--markdown": "c.md", "--summary": "s.md", "--html": "out/r.html", "--junit-xml": "j.xml"}
    gradbot("report", "head.json", *(word for pair in names.items() for word in pair), "--link", "https://h/o/n/blob/s")
    assert "https://h/o/n/blob/s/kernels/softcap.py#L40" in (tmp_path / "c.md").read_text()
    assert "What it ran on" in (tmp_path / "s.md").read_text()
    assert "half = 0.5 * grad_output * slope" in (tmp_path / "out" / "r.html").read_text()
    assert 'line="40"' in (tmp_path / "j.xml").read_text()
    gradbot("report", "head.json", "--junit-xml", "j.xml", "--junit-family", "xunit2")
    assert "line=" not in (tmp_path / "j.xml").read_text()


def test_sources_outside_the_root_are_not_quoted(gradbot: Run, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("\n" * 39 + "password\n" * 9)
    raw = codec.dumps(example_run.head()).replace("kernels/softcap.py", "../secret.txt")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "head.json").write_text(raw)
    gradbot("report", "inner/head.json", "--source", "inner", "--html", "r.html")
    assert "password" not in (tmp_path / "r.html").read_text()


def test_annotations_alone_are_printed(gradbot: Run) -> None:
    code, out, _ = gradbot("report", "head.json", "--annotations")
    assert code == 1
    assert all(re.match(r"::(error|warning|notice) ", line) for line in out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("report", "none.json"), r"cannot read the report none\.json: No such file"),
        (("report", "bad.json"), r"bad\.json is not a report of this gradbot: not JSON"),
        (("report", "head.json", "--base", "bad.json"), r"bad\.json is not a report"),
        (("report", "head.json", "--baseline", "none.json"), r"cannot read the baseline none\.json"),
        (("report", "head.json", "--baseline", "bad.json"), r"bad\.json is not JSON"),
        (("report", "head.json", "--baseline", "head.json"), r"head\.json is not a baseline: expected"),
        (("report", "head.json", "--templates", "x"), r"--templates is for the markdown"),
        (("report", "head.json", "--html", "head.json/x"), r"cannot write head\.json/x"),
        (("show", "nothing-like-it"), r"no case 'nothing-like-it' among the 17 cases"),
        (("show", "kernels"), r"means 16 cases; name one of them"),
        (("explain", "GB999"), r"no rule 'GB999'"),
    ],
)
def test_what_is_wrong_is_one_clear_line(gradbot: Run, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "bad.json").write_text("{")
    code, _, err = gradbot(*arguments)
    assert code == 2
    assert re.search(said, err)
    assert len(err.splitlines()) == 1


def test_baseline_update_then_only_new_failures_fail(gradbot: Run, tmp_path: Path) -> None:
    code, out, _ = gradbot("baseline", "update", "head.json")
    assert code == 0
    assert "gradbot-baseline.json: 12 accepted failures (12 added, 0 dropped)" in out
    known = ("--baseline", "gradbot-baseline.json", "--fail-on", "new-failures")
    raw = json.loads(codec.dumps(example_run.head()))
    whole = {**raw, "shards_seen": raw["shard"]["expected"]}
    (tmp_path / "head.json").write_text(json.dumps(whole))
    assert gradbot("report", "head.json", *known)[0] == 0
    lines = (tmp_path / "gradbot-baseline.json").read_text().splitlines()
    (tmp_path / "gradbot-baseline.json").write_text("\n".join([*lines[:2], '  "entries": [', *lines[4:]]))
    assert gradbot("report", "head.json", *known)[0] == 1


def test_the_configured_baseline_is_used(gradbot: Run, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.gradbot]\nbaseline = "accepted.json"\n')
    gradbot("baseline", "update", "head.json")
    assert (tmp_path / "accepted.json").is_file()
    assert "· known" in gradbot("report", "head.json")[1]


def test_stale_entries_are_named(gradbot: Run) -> None:
    gradbot("baseline", "update", "base.json")
    code, out, _ = gradbot("baseline", "check", "head.json")
    assert code == 1
    assert "stale: kernels.rope:Rope double_backward jacobian_mismatch_double_backward (float64 on cpu)" in out
    assert (
        "stale in the baseline: kernels.rope:Rope"
        in gradbot("report", "head.json", "--baseline", "gradbot-baseline.json")[1]
    )
    gradbot("baseline", "update", "head.json")
    assert gradbot("baseline", "check", "head.json")[0] == 0


@pytest.mark.parametrize(
    "name", ["kernels.rope:Rope[rope-32x64]cpu:float64", "kernels.rope:Rope", "rope-32x64", "ROPE"]
)
def test_show_finds_a_case_by_any_name(gradbot: Run, name: str) -> None:
    code, out, _ = gradbot("show", name)
    assert code == 0
    assert out.startswith("kernels.rope:Rope[rope-32x64]cpu:float64")


def test_show_prints_all_of_a_case(gradbot: Run) -> None:
    _, out, _ = gradbot("show", "attn")
    assert "died of SIGSEGV during backward" in out
    assert "misaligned address" in out
    assert "again: gradbot check kernels.attn:FlashAttention" in out


def test_explain_by_id_and_by_kind(gradbot: Run) -> None:
    by_id, by_kind = gradbot("explain", "gb103"), gradbot("explain", "jacobian_mismatch_double_backward")
    assert by_id == by_kind
    assert by_id[0] == 0
    assert "usual causes" in by_id[1]


def test_explain_lists_the_rules(gradbot: Run) -> None:
    assert "GB803" in gradbot("explain")[1]
    assert gradbot("explain", "--all")[1].count("usual causes") > 50
