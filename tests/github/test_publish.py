"""Publishing as a whole: what stands on the pull request at the end, and what the job says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_github.scenes import BASE, HEAD, WORKFLOW, context, report, second_stage, state, tools, upload
from fake_github.server import Fake, running
from fake_github.state import BOT, Fault, Pull, Run, sha

from gradbot import codec
from gradbot.config import CommentMode, FailOn
from gradbot.github.comment import Marker
from gradbot.github.context import Context
from gradbot.github.gather import Gathered, from_files
from gradbot.github.publish import Settings, publish
from gradbot.github.rendering import Rendered


@pytest.fixture
def fake() -> Iterator[Fake]:
    with running(state()) as served:
        yield served


class Job:
    """One publish: its context, its printed lines, its exit code."""

    def __init__(self, fake: Fake, job: Context, local: Gathered | None = None, **settings: object) -> None:
        self.printed: list[str] = []
        self.code = publish(Settings(**settings), job, local or Gathered(), tools(fake, job, self.printed))


def body(fake: Fake) -> str:
    (only,) = fake.state.of_bot(7)
    return only.body


def test_the_report_of_the_run_becomes_the_comment(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"], wrong=["b"]))
    job = Job(fake, context(fake))
    assert "unclassified b" in body(fake)
    assert job.code == 1


def test_a_report_at_hand_and_its_artifact_are_counted_once(fake: Fake, tmp_path: Path) -> None:
    made = report(wrong=["b"])
    upload(fake.state, 812, made)
    (tmp_path / "report.json").write_text(codec.dumps(made))
    job = context(fake)
    Job(fake, job, from_files([str(tmp_path)], job))
    assert body(fake).count("b\n") == 1
    assert "parts=1" in body(fake)


def test_red_turns_green_on_the_next_push(fake: Fake) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    Job(fake, context(fake))
    pushed = sha("pushed")
    fake.state.pulls[7].head_sha = pushed
    fake.state.merge_bases[BASE, pushed] = BASE
    fake.state.runs[813] = Run(id=813, head_sha=pushed)
    upload(fake.state, 813, report(right=["b"], head=pushed))
    pull = replace(context(fake).pull_request, head_sha=pushed)
    job = Job(fake, context(fake, run_id=813, head_sha=pushed, pull_request=pull))
    assert "state=green" in body(fake)
    assert " b\n" not in body(fake)
    assert job.code == 0


def test_shards_are_joined_and_one_that_died_is_missing(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"], shard="1/2", expected=("1/2", "2/2")), shard="1-of-2")
    job = Job(fake, context(fake))
    assert "missing 2/2" in body(fake)
    assert job.code == 1


def test_a_run_of_which_nothing_is_left_is_told_as_missing(fake: Fake) -> None:
    job = Job(fake, context(fake), expected_shards=("1/2", "2/2"))
    assert "missing 1/2\nmissing 2/2" in body(fake)
    assert job.code == 1


def test_a_broken_artifact_counts_as_missing_and_is_named(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"], shard="1/2", expected=("1/2", "2/2")), shard="1-of-2")
    upload(fake.state, 812, "", shard="2-of-2")
    Job(fake, context(fake))
    assert "missing 2/2" in body(fake)
    assert "the report in gradbot-report.gradbot.2-of-2.1 cannot be used: not JSON" in body(fake)


def test_the_newest_attempt_of_a_shard_counts(fake: Fake) -> None:
    both = ("1/2", "2/2")
    fake.state.runs[812].attempt = 2
    upload(fake.state, 812, report(right=["a"], shard="1/2", expected=both), shard="1-of-2")
    upload(fake.state, 812, report(wrong=["b"], shard="2/2", expected=both), shard="2-of-2")
    upload(fake.state, 812, report(right=["b"], shard="2/2", expected=both, attempt=2), shard="2-of-2", attempt=2)
    job = Job(fake, context(fake, attempt=2))
    assert "state=green" in body(fake)
    assert job.code == 0


def test_an_artifact_of_an_attempt_that_was_never_run_is_ignored(fake: Fake) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    upload(fake.state, 812, report(right=["b"], attempt=999), attempt=999)
    Job(fake, context(fake))
    assert "unclassified b" in body(fake)


@pytest.mark.parametrize("order", [(812, 813), (813, 812)])
def test_the_results_of_two_workflows_stand_side_by_side_whoever_ends_last(fake: Fake, order: tuple[int, int]) -> None:
    gpu = ".github/workflows/gpu.yml"
    fake.state.runs[813] = Run(id=813, head_sha=HEAD, path=gpu)
    upload(fake.state, 812, report(wrong=["cpu_op"]))
    upload(fake.state, 813, report(wrong=["gpu_op"]))
    for run in order:
        Job(fake, context(fake, run_id=run, workflow_path=WORKFLOW if run == 812 else gpu))
    assert "unclassified cpu_op\nunclassified gpu_op" in body(fake)
    assert "parts=2" in body(fake)


def test_a_workflow_that_reports_later_is_added(fake: Fake) -> None:
    gpu = ".github/workflows/gpu.yml"
    fake.state.runs[700] = Run(id=700, head_sha=HEAD, path=gpu)
    upload(fake.state, 812, report(wrong=["cpu_op"]))
    Job(fake, context(fake))
    assert "gpu_op" not in body(fake)
    upload(fake.state, 700, report(wrong=["gpu_op"]))
    Job(fake, context(fake, run_id=700, workflow_path=gpu))
    assert "unclassified cpu_op\nunclassified gpu_op" in body(fake)


def test_a_shard_of_another_workflow_is_missed_under_its_name(fake: Fake) -> None:
    fake.state.runs[813] = Run(id=813, head_sha=HEAD, path=".github/workflows/gpu.yml")
    upload(fake.state, 812, report(right=["a"]))
    upload(fake.state, 813, report(right=["b"], shard="1/2", expected=("1/2", "2/2")), shard="1-of-2")
    Job(fake, context(fake))
    assert "missing gpu:2/2" in body(fake)


def test_two_pull_requests_from_one_head_keep_to_their_own_runs(fake: Fake) -> None:
    fake.state.pulls[8] = Pull(number=8, head_sha=HEAD, base_sha=BASE, base_ref="stable")
    fake.state.runs[813] = Run(id=813, head_sha=HEAD)
    upload(fake.state, 812, report(wrong=["into_main"]))
    upload(fake.state, 813, report(wrong=["into_stable"]))
    other = replace(context(fake).pull_request, number=8, base_ref="stable")
    Job(fake, context(fake, run_id=813, pull_request=other))
    Job(fake, context(fake))
    assert "into_main" in body(fake)
    assert "into_stable" not in body(fake)
    assert "into_stable" in fake.state.of_bot(8)[0].body


def test_two_ids_have_two_comments_and_never_mix(fake: Fake) -> None:
    upload(fake.state, 812, report(wrong=["core_op"]), comment_id="core")
    upload(fake.state, 812, report(wrong=["extra_op"]), comment_id="extra")
    for name in ("core", "extra"):
        Job(fake, context(fake), comment_id=name)
    first, second = (each.body for each in fake.state.of_bot(7))
    assert "core_op" in first
    assert "extra_op" not in first
    assert "extra_op" in second
    assert "core_op" not in second


def test_a_stale_run_writes_nothing(fake: Fake) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    fake.state.pulls[7].head_sha = sha("pushed")
    job = Job(fake, context(fake))
    assert fake.state.of_bot(7) == []
    assert any("moved on" in line for line in job.printed)


def test_a_report_of_another_commit_is_left_out(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"], head=sha("other")))
    Job(fake, context(fake))
    assert "was left out" in body(fake)
    assert "missing 1/1" in body(fake)


def test_a_bot_made_to_repeat_a_marker_does_not_silence_us(fake: Fake) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    marker = Marker(id="gradbot", sha=HEAD, run=10**12, attempt=1, parts=9)
    fake.state.comment(7, BOT, f"{marker}\nall is well")
    Job(fake, context(fake))
    assert "unclassified b" in body(fake)


def test_a_result_that_a_later_run_really_posted_stays(fake: Fake) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    fake.state.runs[900] = Run(id=900, head_sha=HEAD)
    marker = Marker(id="gradbot", sha=HEAD, run=900, attempt=1)
    fake.state.comment(7, BOT, f"{marker}\nnewer")
    Job(fake, context(fake))
    assert body(fake) == f"{marker}\nnewer"


def test_a_read_only_token_falls_back_with_a_notice_and_the_verdict_stands(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"]))
    job = Job(fake, context(fake, token="read-only"))
    assert job.code == 0
    assert fake.state.of_bot(7) == []
    assert any(line.startswith("::notice") and "may only read" in line for line in job.printed)


def test_a_limit_that_lasts_too_long_is_not_taken_for_a_read_only_token(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"]))
    slow = Fault(status=403, message="You have exceeded a secondary rate limit", headers={"Retry-After": "3600"})
    fake.state.trouble = lambda method, path: slow if method == "POST" and "/issues/" in path else None
    job = Job(fake, context(fake))
    assert job.code == 0
    assert any(line.startswith("::warning") and "rate limit" in line for line in job.printed)


def test_a_locked_pull_request_is_told_in_github_s_words(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"]))
    locked = Fault(status=403, message="Unable to create comment because issue is locked.")
    fake.state.trouble = lambda method, path: locked if method == "POST" and "/issues/" in path else None
    job = Job(fake, context(fake))
    assert job.code == 0
    assert any("issue is locked" in line for line in job.printed)


def test_a_pull_request_that_is_hidden_from_the_token_ends_at_once(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"]))
    fake.state.trouble = lambda method, path: Fault(status=404) if method == "POST" and "/issues/" in path else None
    job = Job(fake, context(fake))
    assert job.code == 0
    assert len([each for each in fake.state.requests if each[0] == "POST" and "/issues/" in each[1]]) == 1


def test_without_a_pull_request_there_is_a_notice_and_no_failure(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"]))
    fake.state.pulls.clear()
    fake.state.runs[812].event = "push"
    job = Job(fake, context(fake, event="push", pull_request=None, sha=HEAD))
    assert job.code == 0
    assert any(line.startswith("::notice") and "no open pull request" in line for line in job.printed)


def test_a_push_finds_the_pull_request_of_its_commit(fake: Fake) -> None:
    fake.state.runs[812].event = "push"
    upload(fake.state, 812, report(wrong=["b"]))
    Job(fake, context(fake, event="push", pull_request=None, sha=HEAD))
    assert "unclassified b" in body(fake)


def test_posting_problems_change_no_verdict_unless_asked_to(fake: Fake) -> None:
    upload(fake.state, 812, report(right=["a"]))
    fake.state.trouble = lambda method, path: Fault(status=500) if "/issues/" in path else None
    assert Job(fake, context(fake)).code == 0
    strict = Job(fake, context(fake), strict=True)
    assert strict.code == 4
    assert any(line.startswith("::warning") and "could not be posted" in line for line in strict.printed)


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [(FailOn.FAILURES, 1), (FailOn.ERRORS, 0), (FailOn.NOTHING, 0), (FailOn.NEW_FAILURES, 1)],
)
def test_fail_on_decides_the_exit_code(fake: Fake, fail_on: FailOn, code: int) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    assert Job(fake, context(fake), fail_on=fail_on).code == code


def test_outputs_and_summary_are_written_for_the_step(fake: Fake, tmp_path: Path) -> None:
    upload(fake.state, 812, report(right=["a"], wrong=["b"]))
    output, summary = tmp_path / "output", tmp_path / "summary"
    summary.write_text("what the step wrote before\n")
    Job(fake, context(fake, output_path=str(output), summary_path=str(summary)))
    values = read_outputs(output.read_text())
    assert values["verdict"] == "wrong"
    assert (values["targets"], values["checked"], values["failures"], values["errors"]) == ("2", "2", "1", "0")
    assert values["comment-id"] == str(fake.state.of_bot(7)[0].id)
    assert summary.read_text().startswith("what the step wrote before\nunclassified b\n")


def test_the_summary_is_given_the_bytes_that_are_left(fake: Fake, tmp_path: Path) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    summary = tmp_path / "summary"
    summary.write_bytes(b"x" * 999_990)
    Job(fake, context(fake, summary_path=str(summary)))
    assert summary.stat().st_size <= 1_000_001


def test_annotations_go_to_the_run_that_checked(fake: Fake) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    assert "::error file=kernels/ops.py,line=12::b" in Job(fake, context(fake)).printed
    assert [x for x in Job(fake, context(fake), annotations=False).printed if "::error" in x] == []


def test_a_dry_run_prints_what_would_be_sent_and_sends_nothing(fake: Fake, tmp_path: Path) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    job = context(fake, output_path=str(tmp_path / "o"), summary_path=str(tmp_path / "s"))
    dry = Job(fake, job, dry_run=True)
    assert fake.state.comments == {}
    assert not (tmp_path / "o").exists()
    assert not (tmp_path / "s").exists()
    Job(fake, job)
    sent = body(fake)
    assert f"would send POST /repos/{job.repository}/issues/7/comments" in dry.printed
    assert sent in dry.printed
    again = Job(fake, job, dry_run=True)
    assert "would send no comment: up to date" in again.printed


def test_off_posts_nothing_and_still_tells_the_job(fake: Fake, tmp_path: Path) -> None:
    upload(fake.state, 812, report(wrong=["b"]))
    Job(fake, context(fake, summary_path=str(tmp_path / "s")), mode=CommentMode.OFF)
    assert fake.state.comments == {}
    assert "unclassified b" in (tmp_path / "s").read_text()


def test_the_second_stage_posts_for_a_fork(fake: Fake) -> None:
    fork_of(fake)
    upload(fake.state, 812, report(wrong=["b"]))
    job = Job(fake, second_stage(fake))
    assert "unclassified b" in body(fake)
    assert "of a fork" in body(fake)
    assert [line for line in job.printed if line.startswith("::error")] == []


def test_the_one_artifact_that_holds_everything_is_linked(fake: Fake) -> None:
    made = upload(fake.state, 812, report(wrong=["b"]))
    job, printed = context(fake), []
    publish(Settings(), job, Gathered(), replace(tools(fake, job, printed), rendering=Rendered()))
    assert f"/actions/runs/812/artifacts/{made.id}" in body(fake)


def test_enterprise_addresses_are_honoured(fake: Fake) -> None:
    with running(state(), enterprise=True) as enterprise:
        upload(enterprise.state, 812, report(wrong=["b"]))
        Job(enterprise, context(enterprise))
        assert enterprise.api_url.endswith("/api/v3")
        assert "unclassified b" in enterprise.state.of_bot(7)[0].body


def fork_of(fake: Fake, repository: str = "mallory/kernels", branch: str = "feature") -> None:
    fake.state.pulls[7] = Pull(number=7, head_sha=HEAD, head_ref=branch, head_repository=repository, base_sha=BASE)
    fake.state.runs[812] = Run(id=812, head_sha=HEAD, head_branch=branch, head_repository=repository)


def read_outputs(text: str) -> dict[str, str]:
    """GITHUB_OUTPUT as the runner reads it."""
    values, lines = {}, iter(text.splitlines())
    for line in lines:
        name, _, delimiter = line.partition("<<")
        block = []
        for inner in lines:
            if inner == delimiter:
                break
            block.append(inner)
        values[name] = "\n".join(block)
    return values


def test_a_rerun_that_left_nothing_new_still_counts_as_newer(fake: Fake) -> None:
    fake.state.runs[812].attempt = 2
    upload(fake.state, 812, report(wrong=["b"]))
    Job(fake, context(fake))
    Job(fake, context(fake, attempt=2))
    assert "attempt=2 " in body(fake).splitlines()[0]
    Job(fake, context(fake))
    assert "attempt=2 " in body(fake).splitlines()[0]
