"""Every file that is rendered from the code: the schema, the example run in every form, and the pages of the rules.

`python tests/golden.py` writes them; a test compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import example_run

from gradbot import codec
from gradbot.explanations import EXPLANATIONS, page
from gradbot.report import baseline, compare, html, junit, markdown, terminal
from gradbot.report.annotations import render as render_annotations
from gradbot.rules import BY_ID

ROOT = Path(__file__).parent.parent
LINKS = markdown.Links(
    blob=f"https://github.com/acme/kernels/blob/{example_run.HEAD_SHA}",
    run="https://github.com/acme/kernels/actions/runs/812",
    html="https://github.com/acme/kernels/actions/runs/812#artifacts",
    junit="https://github.com/acme/kernels/actions/runs/812#artifacts",
)


def rendered() -> Mapping[str, str]:
    """Every file by its path from the repository's root."""
    return {**schema(), **examples(), **rules()}


def schema() -> Mapping[str, str]:
    return {"reports/schema/report-v1.schema.json": json.dumps(codec.schema(), indent=2) + "\n"}


def examples() -> Mapping[str, str]:
    head, base = example_run.head(), example_run.base()
    changes = compare.compare(head, base)
    files = {
        "report.json": codec.dumps(head, indent=1) + "\n",
        "base.json": codec.dumps(base, indent=1) + "\n",
        "baseline.json": baseline.dumps(baseline.from_report(base)),
        "junit.xml": junit.render(head),
        "junit-xunit2.xml": junit.render(head, "xunit2"),
        "comment.md": markdown.comment(head, changes, links=LINKS),
        "comment-short.md": markdown.comment(head, changes, links=LINKS, limit=4_000),
        "summary.md": markdown.summary(head, changes, links=LINKS),
        "report.html": html.render(head, changes, links=LINKS, sources=example_run.SOURCES),
        "annotations.txt": render_annotations(head, changes),
        "terminal.txt": terminal.render(head, width=80, told=changes.told, files=(".gradbot/report.json",)),
        "case.txt": terminal.render_case(head.results[0], width=80),
    }
    return {f"reports/examples/{name}": content for name, content in files.items()}


def rules() -> Mapping[str, str]:
    pages = {rule.id: page(rule, EXPLANATIONS[rule.kind]) for rule in BY_ID.values()}
    index = ["# Rules", "", "| rule | kind | | summary |", "| --- | --- | --- | --- |"]
    index += [
        f"| [{rule.id}]({rule.id}.md) | `{rule.kind}` | {rule.severity.value} | {rule.summary} |"
        for rule in BY_ID.values()
    ]
    files = {f"docs/rules/{name}.md": content for name, content in pages.items()}
    return {"docs/rules/README.md": "\n".join(index) + "\n", **files}


def main() -> int:
    for name, content in rendered().items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
