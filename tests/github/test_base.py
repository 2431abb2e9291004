"""The base report: of the newest finished run on the base branch, at or before the merge base, that can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fake_github.scenes import BASE, FAST, HEAD, WORKFLOW, context, report, state, upload
from fake_github.server import Fake, running
from fake_github.state import BAD_GATEWAY, Fault, Run, sha

from gradbot.github.base import Base, find
from gradbot.github.client import Client
from gradbot.github.gather import Names
from gradbot.report.merge import merge

OLDER = sha("older")


@pytest.fixture
def fake() -> Iterator[Fake]:
    with running(state()) as served:
        yield served


def pushed(fake: Fake, number: int, head: str = BASE, wrong: str = "b", **changes: object) -> None:
    """A run that a push to main started, with its report."""
    run = Run(id=number, head_sha=head, head_branch="main", event="push", conclusion="success")
    fake.state.runs[number] = replace(run, **changes)
    upload(fake.state, number, report(wrong=[wrong], head=head))


def base_of(fake: Fake) -> Base:
    job = context(fake)
    return find(
        Client(job, FAST), job.pull_request, WORKFLOW, Names(prefix="gradbot-report", comment_id="gradbot"), merge
    )


def names(base: Base) -> list[str]:
    assert base.report is not None, base.words
    return [target.id for target in base.report.targets]


def test_the_run_of_the_merge_base_is_found(fake: Fake) -> None:
    pushed(fake, 700)
    base = base_of(fake)
    assert names(base) == ["b"]
    assert base.words == f"compared with main@{BASE[:7]}"


def test_a_failed_run_counts_as_well_as_one_that_succeeded(fake: Fake) -> None:
    pushed(fake, 700, conclusion="failure")
    assert names(base_of(fake)) == ["b"]


def test_an_earlier_commit_serves_where_the_merge_base_has_no_report(fake: Fake) -> None:
    pushed(fake, 600, head=OLDER)
    assert names(base_of(fake)) == ["b"]


def test_the_nearest_commit_wins_then_the_newest_run(fake: Fake) -> None:
    pushed(fake, 900, head=OLDER, wrong="of an older commit, run later")
    pushed(fake, 700, wrong="first run")
    pushed(fake, 701, wrong="second run")
    assert names(base_of(fake)) == ["second run"]


def test_a_run_without_a_report_is_passed_over(fake: Fake) -> None:
    pushed(fake, 600, head=OLDER)
    fake.state.runs[700] = Run(id=700, head_sha=BASE, head_branch="main", event="push")
    assert names(base_of(fake)) == ["b"]


@pytest.mark.parametrize(
    "changes",
    [
        {"head_repository": "mallory/kernels"},  # a fork can have a branch named main
        {"event": "pull_request"},
        {"event": "issue_comment"},
        {"path": ".github/workflows/other.yml"},
        {"path": "dynamic/gradients.yml"},
        {"status": "in_progress", "conclusion": None},
        {"head_branch": "feature"},
    ],
)
def test_a_run_that_cannot_be_trusted_is_not_used(fake: Fake, changes: dict[str, object]) -> None:
    pushed(fake, 700, **changes)
    base = base_of(fake)
    assert base.report is None
    assert base.words == f"no report found on main at or before {BASE[:7]}"


def test_a_commit_after_the_merge_base_is_not_used(fake: Fake) -> None:
    later = sha("later")
    fake.state.history.insert(0, later)
    pushed(fake, 700, head=later)
    assert base_of(fake).report is None


def test_a_report_of_another_commit_in_the_base_run_is_not_used(fake: Fake) -> None:
    fake.state.runs[700] = Run(id=700, head_sha=BASE, head_branch="main", event="push")
    upload(fake.state, 700, report(wrong=["b"], head=HEAD))
    assert base_of(fake).report is None


def test_shards_of_the_base_are_joined(fake: Fake) -> None:
    fake.state.runs[700] = Run(id=700, head_sha=BASE, head_branch="main", event="push")
    for number, name in (("1", "a"), ("2", "b")):
        made = report(wrong=[name], head=BASE, shard=f"{number}/2", expected=("1/2", "2/2"))
        upload(fake.state, 700, made, shard=f"{number}-of-2")
    assert names(base_of(fake)) == ["a", "b"]


def test_a_history_of_several_pages_is_read(fake: Fake) -> None:
    fake.state.history[1:] = [sha(f"c{n}") for n in range(250)]
    pushed(fake, 700, head=sha("c240"))
    assert names(base_of(fake)) == ["b"]


def test_passing_faults_are_ridden_out(fake: Fake) -> None:
    pushed(fake, 700)
    fake.state.faults += [("GET", part, BAD_GATEWAY) for part in ("/compare/", "/commits", "/runs", "/zip")]
    assert names(base_of(fake)) == ["b"]


def test_a_base_that_cannot_be_read_is_told_and_no_end(fake: Fake) -> None:
    fake.state.trouble = lambda method, path: Fault(status=404) if "/compare/" in path else None
    base = base_of(fake)
    assert base.report is None
    assert base.words.startswith("no base report could be read")
