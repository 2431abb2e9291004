"""A report as GitHub markdown: the pull-request comment and the job summary, always within GitHub's limits.

The words are in `templates/*.md.j2`. A repository changes them with a folder of its own: a `comment.md.j2` or
`summary.md.j2` there that says `{% extends "gradbot/comment.md.j2" %}` overrides the blocks it names. Whatever a
template shows is escaped, unless it went through one of the filters that make markdown; `raw` is for macros' results.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import BaseLoader, ChoiceLoader, FileSystemLoader, PrefixLoader, StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from gradbot.errors import UsageError
from gradbot.model import Report
from gradbot.report import compare, markdown_escape, text
from gradbot.report.compare import Changes
from gradbot.report.markdown_escape import Safe
from gradbot.report.markdown_parts import STAGES, Links
from gradbot.report.markdown_view import View, build

COMMENT_CHARACTERS = 65_536
SUMMARY_BYTES = 1_000_000
_TEMPLATES = Path(__file__).parent / "templates"
_SHORTEST = 200
__all__ = ["COMMENT_CHARACTERS", "SUMMARY_BYTES", "Links", "comment", "summary"]


def comment(
    report: Report,
    changes: Changes | None = None,
    *,
    links: Links | None = None,
    fork: bool = False,
    limit: int = COMMENT_CHARACTERS,
    templates: Path | None = None,
) -> str:
    """The text of a pull-request comment, at most `limit` characters.

    `fork` says that the report was made by a fork's own workflow. Raises `UsageError` for templates that do not work.
    """
    return _render("comment.md.j2", report, changes, links, fork, templates, lambda body: len(body) <= limit, limit)


def summary(
    report: Report,
    changes: Changes | None = None,
    *,
    links: Links | None = None,
    fork: bool = False,
    limit: int = SUMMARY_BYTES,
    templates: Path | None = None,
) -> str:
    """The text of a job summary, at most `limit` bytes of UTF-8; the caller takes off what the step wrote before.

    Raises `UsageError` for templates that do not work.
    """

    def fits(body: str) -> bool:
        return len(body.encode()) <= limit

    return _render("summary.md.j2", report, changes, links, fork, templates, fits, limit)


def _render(
    name: str,
    report: Report,
    changes: Changes | None,
    links: Links | None,
    fork: bool,
    templates: Path | None,
    fits: Any,
    limit: int,
) -> str:
    changes = compare.compare(report) if changes is None else changes
    environment = _environment(templates)
    failing = sum(item.failing and item.new for item in changes.told)
    for detail in STAGES:
        if min(failing, detail.full + detail.lines) * _SHORTEST > 2 * limit:
            continue
        view = build(report, changes, links or Links(), detail, fork=fork)
        body = _fill(environment, name, view)
        if fits(body):
            return body
    return _bare(view, limit)


def _bare(view: View, limit: int) -> str:
    """The verdict alone, for the tightest of limits; four bytes a character at most."""
    line = f"**{view.symbol} gradbot:** {markdown_escape.escape(view.verdict)}\n"
    return line if len(line.encode()) <= limit else text.cut("gradbot: see its report", max(limit // 4, 0))


def _fill(environment: SandboxedEnvironment, name: str, view: View) -> str:
    try:
        body = environment.get_template(name).render(view=view)
    except TemplateError as error:
        raise UsageError(f"the template {name} does not work: {type(error).__name__}: {error}") from None
    lines = [line.rstrip() for line in body.strip().split("\n")]
    kept = [line for i, line in enumerate(lines) if line or (i and lines[i - 1])]
    return "\n".join(kept) + "\n"


@cache
def _environment(templates: Path | None) -> SandboxedEnvironment:
    own = FileSystemLoader(_TEMPLATES)
    loaders: list[BaseLoader] = [PrefixLoader({"gradbot": own}), own]
    if templates is not None:
        if not templates.is_dir():
            raise UsageError(f"{templates} is not a folder; expected one that holds comment.md.j2 or summary.md.j2")
        loaders.insert(0, FileSystemLoader(templates))
    environment = SandboxedEnvironment(
        loader=ChoiceLoader(loaders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # that is for HTML; `finalize` escapes for markdown
        finalize=_finalize,
    )
    environment.filters.update(
        code=markdown_escape.code,
        fenced=markdown_escape.fenced,
        html=markdown_escape.in_html,
        html_code=markdown_escape.html_code,
        link=markdown_escape.link,
        label=markdown_escape.escape,
        raw=Safe,
        plural=lambda value, word, words="": Safe(text.plural(value, word, words)),
    )
    return environment


def _finalize(value: object) -> object:
    return markdown_escape.escape(value, 2000)
