"""Small reports, contexts and a plain rendering, for tests that say what they mean in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fake_github.server import Fake
from fake_github.state import REPOSITORY, Artifact, Pull, State, sha
from fake_github.state import Run as StoredRun
from gradbot import codec
from gradbot.github.client import Client, Timing
from gradbot.github.context import Context, PullRequest, WorkflowRun
from gradbot.github.page import Page
from gradbot.github.publish import Tools
from gradbot.model import (
    Case,
    CaseResult,
    CheckResult,
    Finding,
    InputSource,
    Location,
    Outcome,
    Report,
    Run,
    Severity,
    Shard,
    Target,
    TargetKind,
)
from gradbot.report.merge import merge

HEAD, BASE = sha("head"), sha("base")
WORKFLOW = ".github/workflows/gradients.yml"
FAST = Timing(request=2, tries=4, backoff=0.01, secondary=0.05, longest=2.0, between_writes=0.0, settle=0.0)


def result(name: str, outcome: Outcome = Outcome.PASSED, device: str = "cpu") -> CaseResult:
    """One case of target `name` whose backward passed or failed."""
    findings = ()
    if outcome is Outcome.FAILED:
        findings = (Finding(rule="GB101", kind="backward_mismatch", check="backward", severity=Severity.ERROR),)
    case = Case(
        id=f"{name}[0]{device}:float64", target=name, name="0", source=InputSource.DECLARED, reference="declared:a#0"
    )
    check = CheckResult(check="backward", outcome=outcome, findings=findings)
    return CaseResult(case=replace(case, device=device), outcome=outcome, checks=(check,))


def report(
    *,
    right: Sequence[str] = (),
    wrong: Sequence[str] = (),
    shard: str = "1/1",
    expected: Sequence[str] = ("1/1",),
    head: str = HEAD,
    attempt: int = 1,
) -> Report:
    """A report in which some targets are right and some wrong."""
    location = Location(path="kernels/ops.py", line=12, symbol="backward")
    names = (*right, *wrong)
    outcomes = {name: Outcome.FAILED if name in wrong else Outcome.PASSED for name in names}
    return Report(
        run=Run(
            repository=REPOSITORY, head_sha=head, checked_out_sha=head, attempt=attempt, started="2026-01-01T00:00:00Z"
        ),
        shard=Shard(name=shard, expected=tuple(expected)),
        shards_seen=(shard,),
        targets=tuple(Target(id=name, kind=TargetKind.FUNCTION, location=location) for name in names),
        results=tuple(replace(result(name, outcome), run_attempt=attempt) for name, outcome in outcomes.items()),
    )


def state(**more: object) -> State:
    """Pull request 7 from a branch of the repository, checked by run 812."""
    made = State(
        pulls={7: Pull(number=7, head_sha=HEAD, base_sha=BASE)},
        runs={812: StoredRun(id=812, head_sha=HEAD)},
        history=[BASE, sha("older"), sha("oldest")],
        merge_bases={(BASE, HEAD): BASE},
    )
    for name, value in more.items():
        setattr(made, name, value)
    return made


def upload(
    made: State, run: int, what: Report | str, *, shard: str = "1-of-1", attempt: int = 1, comment_id: str = "gradbot"
) -> Artifact:
    """Upload a report the way the action does."""
    text = what if isinstance(what, str) else codec.dumps(what)
    return made.upload(run, f"gradbot-report.{comment_id}.{shard}.{attempt}", {"report.json": text})


def context(fake: Fake, **changes: object) -> Context:
    """The job of run 812 on pull request 7."""
    made = Context(
        repository=REPOSITORY,
        event="pull_request",
        sha=sha("merge"),
        head_sha=HEAD,
        run_id=812,
        attempt=1,
        workflow_path=WORKFLOW,
        default_branch="main",
        pull_request=PullRequest(
            number=7, head_sha=HEAD, head_ref="feature", head_repository=REPOSITORY, base_sha=BASE, base_ref="main"
        ),
        api_url=fake.api_url,
        graphql_url=fake.graphql_url,
        server_url=fake.server_url,
        token="good",
    )
    return replace(made, **changes)


def second_stage(fake: Fake, **changes: object) -> Context:
    """The job that a completed run of a fork's pull request started on the default branch."""
    run = fake.state.runs[812]
    trigger = WorkflowRun(
        id=812,
        attempt=1,
        event="pull_request",
        head_sha=HEAD,
        head_branch=run.head_branch,
        head_repository=run.head_repository,
        path=WORKFLOW,
    )
    made = context(
        fake,
        event="workflow_run",
        sha=BASE,
        run_id=900,
        workflow_path=".github/workflows/publish.yml",
        pull_request=None,
        trigger=trigger,
    )
    return replace(made, **changes)


class Plain:
    """A rendering that a test can read."""

    def comment(self, page: Page, limit: int) -> str:
        return self._text(page)[:limit]

    def summary(self, page: Page, limit: int) -> str:
        return self._text(page)[:limit]

    def annotations(self, page: Page, per_level: int) -> list[str]:
        return [f"::error file=kernels/ops.py,line=12::{item.target}" for item in page.changes.told if item.failing][
            :per_level
        ]

    def _text(self, page: Page) -> str:
        told = [f"{item.classification.value} {item.target}" for item in page.changes.told if item.failing]
        told += [f"fixed {item.target}" for item in page.changes.fixed]
        told += [f"missing {name}" for name in page.verdict.missing_shards]
        return "\n".join([*told, page.base_words, *page.remarks, *(["of a fork"] if page.fork else []), "end"])


def tools(fake: Fake, job: Context, printed: list[str]) -> Tools:
    """Everything real but the rendering and the waiting."""
    client = Client(job, FAST) if job.token else None
    return Tools(rendering=Plain(), merge=merge, client=client, emit=printed.append, sleep=lambda seconds: None)
