"""Cut the part of GitHub's official REST description that the fake serves into `rest_description.json`.

The description comes from the npm package `@octokit/openapi` (MIT). Run once for each update:
`python tests/fake_github/cut_description.py node_modules/@octokit/openapi/generated/api.github.com.json`.
Only prose and examples are left out; types, required keys, enums and bounds stay as GitHub publishes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OPERATIONS = {
    "/repos/{owner}/{repo}/issues/{issue_number}/comments": ("get", "post"),
    "/repos/{owner}/{repo}/issues/comments/{comment_id}": ("get", "patch", "delete"),
    "/repos/{owner}/{repo}/commits": ("get",),
    "/repos/{owner}/{repo}/commits/{commit_sha}/pulls": ("get",),
    "/repos/{owner}/{repo}/compare/{basehead}": ("get",),
    "/repos/{owner}/{repo}/pulls": ("get",),
    "/repos/{owner}/{repo}/pulls/{pull_number}": ("get",),
    "/repos/{owner}/{repo}/actions/runs": ("get",),
    "/repos/{owner}/{repo}/actions/runs/{run_id}": ("get",),
    "/repos/{owner}/{repo}/actions/runs/{run_id}/artifacts": ("get",),
    "/repos/{owner}/{repo}/actions/workflows/{workflow_id}/runs": ("get",),
    "/repos/{owner}/{repo}/actions/artifacts/{artifact_id}/{archive_format}": ("get",),
}
PROSE = {"description", "summary", "examples", "example", "externalDocs", "x-github", "x-octokit", "tags", "title"}


def cut(description: dict[str, Any]) -> dict[str, Any]:
    """The operations above with every component they reach."""
    paths = {}
    for path, methods in OPERATIONS.items():
        item = description["paths"][path]
        shared = {"parameters": item["parameters"]} if "parameters" in item else {}
        paths[path] = without_prose({**shared, **{method: item[method] for method in methods}})
    components: dict[str, dict[str, Any]] = {}
    waiting = list(references(paths))
    while waiting:
        _, _, group, name = waiting.pop().split("/", 3)
        if name not in components.setdefault(group, {}):
            components[group][name] = without_prose(description["components"][group][name])
            waiting += references(components[group][name])
    return {
        "openapi": description["openapi"],
        "info": {"title": "A part of GitHub's REST description", "version": description["info"]["version"]},
        "servers": [{"url": "http://fake"}],
        "paths": paths,
        "components": components,
    }


def without_prose(value: Any, names: bool = False) -> Any:
    """`value` without explanations. `names`: the keys are names of properties, not keywords."""
    if isinstance(value, dict):
        kept = value.items() if names else ((k, v) for k, v in value.items() if k not in PROSE)
        return {key: without_prose(item, names=key == "properties" and not names) for key, item in kept}
    if isinstance(value, list):
        return [without_prose(item) for item in value]
    return value


def references(value: Any) -> list[str]:
    """Every `$ref` below `value`."""
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [each for item in value.values() for each in references(item)]
    if isinstance(value, list):
        return [each for item in value for each in references(item)]
    return []


if __name__ == "__main__":
    subset = cut(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    # Responses need a description by OpenAPI's own rules.
    for item in subset["paths"].values():
        for operation in item.values():
            for response in operation.get("responses", {}).values() if isinstance(operation, dict) else ():
                response.setdefault("description", "")
    for response in subset["components"].get("responses", {}).values():
        response.setdefault("description", "")
    target = Path(__file__).with_name("rest_description.json")
    target.write_text(json.dumps(subset, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
