"""Attacks on the stage that holds the token: what a fork's report and its run claim changes nothing of what counts."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cmarkgfm import github_flavored_markdown_to_html
from fake_github.scenes import BASE, FAST, HEAD, context, report, second_stage, state, tools, upload
from fake_github.server import Fake, running
from fake_github.state import REPOSITORY, Pull, Run, sha

from gradbot import codec
from gradbot.errors import UsageError
from gradbot.github import target
from gradbot.github.client import Client
from gradbot.github.context import Context, read
from gradbot.github.gather import Gathered, from_files
from gradbot.github.publish import Settings, publish
from gradbot.github.rendering import Rendered
from gradbot.model import Report

FORK = "mallory/kernels"


@pytest.fixture
def fake() -> Iterator[Fake]:
    made = state()
    made.pulls[7] = Pull(number=7, head_sha=HEAD, head_repository=FORK, base_sha=BASE)
    made.runs[812] = Run(id=812, head_sha=HEAD, head_repository=FORK)
    with running(made) as served:
        yield served


def stage(fake: Fake, job: Context | None = None, **settings: object) -> list[str]:
    """Run the second stage with the real rendering; what it printed."""
    printed: list[str] = []
    job = job or second_stage(fake)
    publish(Settings(**settings), job, Gathered(), replace(tools(fake, job, printed), rendering=Rendered()))
    return printed


def body(fake: Fake, number: int = 7) -> str:
    (only,) = fake.state.of_bot(number)
    return only.body


def test_the_pull_request_is_found_by_repository_branch_and_commit(fake: Fake) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    stage(fake)
    assert "fork" in body(fake)


@pytest.mark.parametrize(
    "victim",
    [
        Pull(number=8, head_sha=HEAD, head_ref="feature", head_repository=REPOSITORY),  # same branch and sha, ours
        Pull(number=8, head_sha=HEAD, head_ref="other", head_repository=FORK),  # same sha, another branch
        Pull(number=8, head_sha=sha("theirs"), head_ref="feature", head_repository="mallory/other"),  # same owner
        Pull(number=8, head_sha=sha("theirs"), head_ref="feature", head_repository=FORK),  # another commit
        Pull(number=8, head_sha=HEAD, head_ref="feature", head_repository=None),  # a fork that was deleted
    ],
)
def test_another_pull_request_is_never_written_to(fake: Fake, victim: Pull) -> None:
    fake.state.pulls = {8: victim}
    upload(fake.state, 812, report(right=["a"]))
    printed = stage(fake)
    assert fake.state.comments == {}
    assert any("no open pull request" in line for line in printed)


def test_a_closed_pull_request_is_left_alone(fake: Fake) -> None:
    fake.state.pulls[7].state = "closed"
    upload(fake.state, 812, report(right=["a"]))
    stage(fake)
    assert fake.state.comments == {}


def test_a_head_that_moved_on_is_left_alone(fake: Fake) -> None:
    fake.state.pulls[7].head_sha = sha("pushed")
    upload(fake.state, 812, report(right=["a"]))
    stage(fake)
    assert fake.state.comments == {}


def test_a_report_that_names_another_commit_is_not_used(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"], head=sha("innocent")))
    stage(fake)
    assert "left out" in body(fake)
    assert "state=red" in body(fake)


def test_what_a_report_says_of_its_origin_is_replaced(fake: Fake) -> None:
    lie = report(right=["a"])
    run = replace(lie.run, repository="victim/repo", checked_out_sha=sha("lie"), ci_run="1", attempt=999, branch="main")
    upload(fake.state, 812, replace(lie, run=run))
    stage(fake)
    assert "victim/repo" not in body(fake)
    assert sha("lie") not in body(fake)
    assert "attempt=1 " in body(fake).splitlines()[0]


def test_the_report_of_another_run_for_the_same_commit_is_not_mixed_in(fake: Fake) -> None:
    """Somebody else pushes the very commit to a fork of theirs and has it checked there by another pull request."""
    fake.state.runs[813] = Run(
        id=813, head_sha=HEAD, head_repository="eve/kernels", path=".github/workflows/gradients.yml"
    )
    upload(fake.state, 812, report(wrong=["b"]))
    upload(fake.state, 813, report(right=["b"]))
    stage(fake)
    assert "state=red" in body(fake)
    assert "parts=1" in body(fake)


def test_expected_shards_are_what_the_default_branch_says(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"], shard="1/1", expected=("1/1",)))
    stage(fake, expected_shards=("1/2", "2/2"))
    assert "state=red" in body(fake)
    assert "2/2" in body(fake)


def test_a_base_branch_of_the_fork_is_no_base(fake: Fake) -> None:
    fake.state.runs[700] = Run(id=700, head_sha=BASE, head_branch="main", event="push", head_repository=FORK)
    upload(fake.state, 700, report(wrong=["b"], head=BASE))
    upload(fake.state, 812, report(wrong=["b"]))
    stage(fake)
    assert "also fails on the base" not in body(fake)
    assert "no report found on main" in body(fake)


def test_nothing_is_annotated_from_the_second_stage(fake: Fake) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    assert [line for line in stage(fake) if "file=" in line or line.startswith("::error")] == []


@pytest.mark.parametrize("event", ["pull_request_target", "issue_comment", "workflow_run", "release"])
def test_runs_of_other_events_are_not_reported_on(fake: Fake, event: str) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    job = second_stage(fake)
    assert job.trigger is not None
    found = target.find(Client(job, FAST), replace(job, trigger=replace(job.trigger, event=event)))
    assert found.pull is None


def bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.json", b" " * (60 << 20))
    return buffer.getvalue()


DEEP = '{"schema_version": 1, "notes": ' + "[" * 100_000 + "]" * 100_000 + "}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (DEEP, "nested deeper"),
        ('{"schema_version": 1, "schema_version": 1}', "stands twice"),
        ('{"schema_version": 1, "run": {"seconds": NaN}}', "NaN is not JSON"),
        ('{"schema_version": 1, "run": {"seconds": 1e999}}', ""),
        ('{"schema_version": 1, "command": "rm"}', "unknown key"),
        ('{"schema_version": 2}', "schema_version"),
        ('{"schema_version": 1, "run": {"branch": "' + "x" * 70_000 + '"}}', "longer than"),
        ('{"schema_version": 1, "shards_seen": [' + ",".join(['""'] * 3_000_001) + "]}", "more than"),
        ("[]", "expected Report"),
        ("\ufeff{}", "schema_version"),
        ("", "JSON"),
    ],
    ids=["deep", "twice", "nan", "infinite", "unknown", "version", "long", "many", "list", "bom", "empty"],
)
def test_hostile_json_is_refused_in_words(fake: Fake, text: str, why: str) -> None:
    upload(fake.state, 812, text)
    printed = stage(fake)
    assert "state=red" in body(fake) or not why
    assert any(why in line for line in printed)


def test_an_archive_that_is_a_bomb_is_refused_in_words(fake: Fake) -> None:
    fake.state.upload_raw(812, "gradbot-report.gradbot.1-of-1.1", bomb())
    printed = stage(fake)
    assert "state=red" in body(fake)
    assert any("unpacks to more than" in line for line in printed)


HOSTILE = [
    "@octocat #1 GH-1 https://evil.example www.evil.example $x$ :bomb:",
    "<img src=x onerror=alert(1)><!-- gradbot:gradbot sha=0 -->",
    "`| a | b |` ``` \n```\n# heading",
    "::error::planted\n::set-env name=X::1",
    "\x1b[31mred\u202egnp.exe\u0000",
    "](https://evil.example) ![x](https://evil.example/x.png)",
    "%0A::error::planted",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_nothing_in_comment_and_log(fake: Fake, name: str, tmp_path: Path) -> None:
    made = report(wrong=[name])
    upload(fake.state, 812, made)
    summary, output = tmp_path / "summary", tmp_path / "output"
    printed = stage(fake, second_stage(fake, summary_path=str(summary), output_path=str(output)))
    text = body(fake)
    assert text.startswith("<!-- gradbot:gradbot ")
    assert text.count("<!--") == 1
    assert all("\n" not in line and line.startswith("::") for line in printed)
    assert all("planted" not in line for line in printed)
    assert "\u202e" not in text
    assert "\x1b" not in text
    page = github_flavored_markdown_to_html(text)
    assert 'evil.example"' not in page
    assert "<h1>" not in page


def test_an_output_cannot_close_its_own_block(fake: Fake, tmp_path: Path) -> None:
    output = tmp_path / "output"
    made = report(right=["a"], shard="x\nEOF\nevil=1", expected=("x\nEOF\nevil=1", "y\ncomment-id<<EOF\n9\nEOF"))
    upload(fake.state, 812, made)
    stage(fake, second_stage(fake, output_path=str(output)))
    lines, names = iter(output.read_text().splitlines()), []
    for line in lines:
        name, _, delimiter = line.partition("<<")
        names.append(name)
        while next(lines) != delimiter:
            pass
    assert "evil=1" not in names
    assert names.count("comment-id") == 1


def test_reports_at_hand_are_held_to_the_same_rules(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(DEEP)
    gathered = from_files([str(tmp_path)], second_stage(fake))
    assert gathered.parts == ()
    assert "nested deeper" in gathered.remarks[0]


def test_the_event_is_believed_only_where_it_is_github_s(tmp_path: Path) -> None:
    def of(event: object) -> Context:
        env = {"GITHUB_REPOSITORY": REPOSITORY, "GITHUB_EVENT_NAME": "workflow_run", "GITHUB_EVENT_PATH": "e"}
        return read(env, lambda path: json.dumps(event))

    with pytest.raises(UsageError, match="not what GitHub sends"):
        of({"workflow_run": {"id": 1, "event": "pull_request", "head_sha": "abc; rm -rf /"}})
    with pytest.raises(UsageError, match="not what GitHub sends"):
        of({})
    with pytest.raises(UsageError, match="not a JSON object"):
        of([])


def test_the_token_shows_in_no_representation(fake: Fake) -> None:
    job = context(fake, token="ghs_canary0000")
    assert "ghs_canary0000" not in repr(job)


def test_the_second_stage_is_marked_and_linked_to_the_run_that_checked(fake: Fake) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    stage(fake)
    assert f"/{REPOSITORY}/actions/runs/812" in body(fake)
    assert "actions/runs/900" not in body(fake)


def test_a_report_with_everything_empty_is_taken_for_what_it_is(fake: Fake) -> None:
    upload(fake.state, 812, codec.dumps(Report()))
    stage(fake)
    assert "state=red" in body(fake)
