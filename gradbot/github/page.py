"""What is published, as one value that every text is rendered from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gradbot.config import FailOn
from gradbot.github import gather
from gradbot.github.base import Base
from gradbot.github.context import Context
from gradbot.github.gather import Gathered, Merge
from gradbot.model import Report
from gradbot.report import aggregate, compare
from gradbot.report.aggregate import Verdict
from gradbot.report.baseline import Baseline
from gradbot.report.compare import Changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is rendered: the joined report, how it stands against its base, and what a reader must know of its origin.

    `remarks` are sentences about what is missing or was left out; `fork` says that a fork's own code made the report.
    `artifact` is the page of the one artifact that holds everything, where there is one.
    """

    report: Report
    changes: Changes
    verdict: Verdict
    context: Context
    base_words: str = ""
    base_sha: str = ""
    remarks: tuple[str, ...] = ()
    fork: bool = False
    artifact: str = ""


class Rendering(Protocol):
    """Makes texts of a page. Limits are GitHub's: characters of a comment, bytes of a summary."""

    def comment(self, page: Page, limit: int) -> str:
        """The comment, without its marker."""
        ...

    def summary(self, page: Page, limit: int) -> str:
        """The job summary."""
        ...

    def annotations(self, page: Page, per_level: int) -> Sequence[str]:
        """Workflow commands, at most `per_level` of each level."""
        ...


def make_page(
    context: Context,
    gathered: Gathered,
    base: Base,
    accepted: Baseline | None,
    merge: Merge,
    *,
    expected_shards: Sequence[str] = (),
    fail_on: FailOn = FailOn.FAILURES,
) -> Page:
    """The page of everything that was gathered."""
    report = gather.joined(gathered, merge, expected_shards)
    changes = compare.compare(report, base.report, accepted)
    verdict = aggregate.verdict(report, fail_on.value, changes.told)
    return Page(
        report=report,
        changes=changes,
        verdict=verdict,
        context=context,
        base_words=base.words,
        base_sha=base.sha,
        remarks=gathered.remarks,
        fork=context.from_fork and context.trigger is not None,
        artifact=_artifact(context, gathered),
    )


def _artifact(context: Context, gathered: Gathered) -> str:
    held = [(part.run, part.artifact) for part in gathered.parts if part.artifact]
    if len(held) != 1 or len(gathered.parts) != 1:
        return ""
    run, artifact = held[0]
    return f"{context.server_url}/{context.repository}/actions/runs/{run}/artifacts/{artifact}"


def outputs_of(page: Page, comment: int, files: Mapping[str, str]) -> dict[str, str]:
    """The step's outputs. `comment` is the id of the comment, 0 where there is none; `files` are added."""
    verdict = page.verdict
    if verdict.right:
        word = "right"
    elif verdict.failures or verdict.errors:
        word = "wrong"
    elif verdict.missing_shards or verdict.interrupted:
        word = "incomplete"
    else:
        word = "nothing-checked"
    return {
        "verdict": word,
        "targets": str(verdict.targets),
        "checked": str(verdict.checked),
        "failures": str(verdict.failures),
        "new-failures": str(verdict.new),
        "errors": str(verdict.errors),
        "missing-shards": " ".join(verdict.missing_shards),
        "comment-id": str(comment or ""),
        **files,
    }
