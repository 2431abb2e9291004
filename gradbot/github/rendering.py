"""The report's own writers behind what publishing needs: the one place where the two meet."""

from __future__ import annotations

from collections.abc import Sequence

from gradbot.github.page import Page
from gradbot.report import annotations as workflow_commands
from gradbot.report import markdown
from gradbot.report.markdown import Links
from gradbot.report.markdown_escape import escape

_REMARKS = 10
_REMARK_CHARACTERS = 300


class Rendered:
    """Markdown and annotations of a page; below the verdict, what a reader must know of where it comes from."""

    def comment(self, page: Page, limit: int) -> str:
        """The comment, at most `limit` characters."""
        told = _remarks(page)
        links, room = _links(page), limit - len(told)
        return _below_verdict(
            markdown.comment(page.report, page.changes, links=links, fork=page.fork, limit=room), told
        )

    def summary(self, page: Page, limit: int) -> str:
        """The job summary, at most `limit` bytes."""
        told = _remarks(page)
        links, room = _links(page), limit - len(told.encode())
        return _below_verdict(
            markdown.summary(page.report, page.changes, links=links, fork=page.fork, limit=room), told
        )

    def annotations(self, page: Page, per_level: int) -> Sequence[str]:
        """Workflow commands for the lines at fault."""
        return workflow_commands.render(page.report, page.changes, per_level=per_level).splitlines()


def _links(page: Page) -> Links:
    """Sources are linked at what was checked out; page and JUnit XML lie in the run's artifacts."""
    context = page.context
    if not context.run_id:
        return Links()
    sha = page.report.run.checked_out_sha or context.head_sha
    kept = page.artifact or f"{context.run_url}#artifacts"
    blob = f"{context.server_url}/{context.repository}/blob/{sha}"
    return Links(blob=blob, run=context.run_url, html=kept, junit=kept)


def _remarks(page: Page) -> str:
    """What is missing or was left out, as quotes."""
    told = list(page.remarks[:_REMARKS])
    if len(page.remarks) > _REMARKS:
        told.append(f"{len(page.remarks) - _REMARKS} more remarks are in the run's log")
    if page.changes.base is None and page.base_words:
        told.append(f"base: {page.base_words}")
    return "".join(f"\n> {escape(each, _REMARK_CHARACTERS)}\n" for each in told)


def _below_verdict(text: str, told: str) -> str:
    verdict, line_end, rest = text.partition("\n")
    return f"{verdict}{line_end}{told}{rest}"
