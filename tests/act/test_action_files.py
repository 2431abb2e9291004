"""The action, its scripts, the workflows and the examples agree with each other and with the code, and lint clean."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from act_harness.act import ROOT

from gradbot.cli import check, merge, plan, publish, report
from gradbot.config import CommentMode, Config, FailOn
from gradbot.model import Mode

ACTIONS = {".": "action.yml", "plan": "plan/action.yml", "join": "join/action.yml"}
WORKFLOWS = [*sorted((ROOT / ".github/workflows").glob("*.yml")), *sorted((ROOT / "examples/workflows").glob("*.yml"))]
SCRIPTS = sorted((ROOT / "action").glob("*.sh"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


def load(path: Path | str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / path).read_text())


def steps_of(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from document.get("runs", {}).get("steps", ())
    for job in document.get("jobs", {}).values():
        yield from job.get("steps", ())


def documents() -> list[tuple[str, dict[str, Any]]]:
    paths = [*(ROOT / name for name in ACTIONS.values()), *WORKFLOWS]
    return [(str(path.relative_to(ROOT)), load(path)) for path in paths]


def run(tool: str, *arguments: str) -> None:
    command = [str(Path(sys.executable).with_name(tool)), *arguments]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={"PATH": path, "HOME": "/tmp"}
    )
    assert done.returncode == 0, done.stdout + done.stderr


def files(*groups: Any) -> list[str]:
    return [str(path) for group in groups for path in group]


def test_zizmor_is_clean() -> None:
    run("zizmor", "--offline", "--config", ".github/zizmor.yml", *files(ACTIONS.values(), WORKFLOWS))


def test_actionlint_is_clean() -> None:
    run("actionlint", *files(WORKFLOWS))


def test_shellcheck_is_clean() -> None:
    run("shellcheck", "-x", *files(SCRIPTS))


def test_the_schemas_hold() -> None:
    run("check-jsonschema", "--builtin-schema", "vendor.github-actions", *files(ACTIONS.values()))
    run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files(WORKFLOWS))


@pytest.mark.parametrize(("name", "document"), documents())
def test_nothing_is_expanded_inside_a_script(name: str, document: dict[str, Any]) -> None:
    assert [step["run"] for step in steps_of(document) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize(("name", "document"), documents())
def test_foreign_actions_are_pinned_by_their_full_sha(name: str, document: dict[str, Any]) -> None:
    used = [step["uses"] for step in steps_of(document) if "uses" in step]
    foreign = [each for each in used if not each.startswith(("./", "gradbot/gradbot"))]
    assert [each for each in foreign if not PINNED.fullmatch(each)] == []


def test_one_action_has_one_sha_everywhere() -> None:
    used = {
        step["uses"].split("@")[0]: set()
        for _, document in documents()
        for step in steps_of(document)
        if "uses" in step
    }
    for _, document in documents():
        for step in steps_of(document):
            if "uses" in step:
                name, _, ref = step["uses"].partition("@")
                used[name].add(ref)
    assert {name: refs for name, refs in used.items() if len(refs) > 1} == {}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_grants_nothing_by_default_and_checks_out_without_credentials(path: Path) -> None:
    document = load(path)
    assert document["permissions"] == {}
    checkouts = [step for step in steps_of(document) if step.get("uses", "").startswith("actions/checkout@")]
    assert [step for step in checkouts if step["with"]["persist-credentials"] is not False] == []
    assert [name for name, job in document["jobs"].items() if "permissions" not in job] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_job_that_may_write_runs_nothing_of_the_code_that_is_checked(path: Path) -> None:
    for name, job in load(path)["jobs"].items():
        if job["permissions"].get("pull-requests") == "write" and "steps" in job:
            assert [step["run"] for step in job["steps"] if "run" in step] == [], name
            assert [step["with"]["publish"] for step in job["steps"] if "publish" in step.get("with", {})] == ["only"]
            assert job["concurrency"]["cancel-in-progress"] is False


def test_workflows_give_the_action_inputs_that_it_has() -> None:
    inputs = {name: set(load(path)["inputs"]) for name, path in ACTIONS.items()}
    called = set(load(".github/workflows/check.yml")[True]["workflow_call"]["inputs"])  # YAML reads `on` as true
    for name, document in documents():
        for step in steps_of(document):
            used = step.get("uses", "").split("@")[0]
            if used in ("./", "gradbot/gradbot") or used.startswith("./.gradbot-action"):
                action = used.removeprefix("./.gradbot-action").strip("./") if used.startswith("./") else "."
                assert set(step.get("with", {})) <= inputs[action or "."], name
        for job in document.get("jobs", {}).values():
            if "check.yml@" in job.get("uses", ""):
                assert set(job["with"]) <= called, name


@pytest.mark.parametrize("path", ACTIONS.values())
def test_every_input_reaches_a_step_and_every_forwarded_variable_has_an_input(path: str) -> None:
    document = load(path)
    text = (ROOT / path).read_text()
    used = set(re.findall(r"inputs\.([\w-]+)", text))
    assert used == set(document["inputs"])
    for step in steps_of(document):
        for name, value in step.get("env", {}).items():
            if name.startswith("INPUT_") and "inputs." in value:
                assert value == f"${{{{ inputs.{name.removeprefix('INPUT_').lower().replace('_', '-')} }}}}"


@pytest.mark.parametrize("path", ACTIONS.values())
def test_a_script_reads_exactly_the_variables_that_its_step_forwards(path: str) -> None:
    for step in steps_of(load(path)):
        script = re.search(r"action/(\w+)\.sh", step.get("run", ""))
        if script:
            read = set(
                re.findall(r"\$\{?((?:INPUT_|PYTHON|REPORT|JUNIT|PLAN|MATRIX)\w*)", (ROOT / script[0]).read_text())
            )
            given = {name for name in step["env"] if name not in ("ACTION_PATH", "GITHUB_TOKEN")}
            assert read == given, script[0]


OPTIONS = {
    "check.sh": check.command,
    "plan.sh": plan.command,
    "tell.sh": publish.command,
    "publish.sh": publish.command,
}


@pytest.mark.parametrize("script", OPTIONS)
def test_scripts_use_options_that_the_commands_have(script: str) -> None:
    known = {option for each in OPTIONS[script].params for option in (*each.opts, *each.secondary_opts)}
    lines = [line for line in (ROOT / "action" / script).read_text().splitlines() if "arguments" in line]
    used = set(re.findall(r"(?<=[\s(])(--[a-z-]+)", "\n".join(lines)))
    assert used
    assert used <= known


def test_joining_uses_options_that_the_commands_have() -> None:
    for line in (ROOT / "action/join.sh").read_text().splitlines():
        for name, command in (("merge", merge.command), ("report", report.command)):
            if f"-m gradbot {name} " in line:
                used = set(re.findall(r"(?<= )(--[a-z-]+)", line))
                assert used
                assert used <= {option for each in command.params for option in each.opts}


def test_inputs_that_configure_are_configuration() -> None:
    names = {"packages": "packages", "device": "devices", "dtype": "dtypes"}
    fields = {each.name for each in dataclasses.fields(Config)}
    for name in ("packages", "device", "dtype", "mode", "fail-on", "comment-id", "comment-mode", "baseline"):
        assert names.get(name, name.replace("-", "_")) in fields


@pytest.mark.parametrize(("name", "kind"), [("mode", Mode), ("fail-on", FailOn), ("comment-mode", CommentMode)])
def test_descriptions_name_every_choice(name: str, kind: Any) -> None:
    described = load("action.yml")["inputs"][name]["description"]
    for each in kind:
        assert re.search(rf"\b{each.value}\b", described)


def test_the_artifact_s_default_prefix_is_the_one_that_publishing_looks_for() -> None:
    option = next(each for each in publish.command.params if each.name == "artifact_name")
    assert load("action.yml")["inputs"]["artifact-name"]["default"] == option.default


def test_outputs_come_from_what_publishing_sets() -> None:
    from fake_github.scenes import context, report, state, tools
    from fake_github.server import running

    from gradbot.github import base, gather
    from gradbot.github.page import make_page, outputs_of

    with running(state()) as fake:
        part = gather.Part(report=report(right=["a"]), workflow="w", run=1, attempt=1)
        given = tools(fake, context(fake), [])
        page = make_page(context(fake), gather.Gathered(parts=(part,)), base.Base(), None, given.merge)
    own = {"report", "junit", "artifact"}
    assert set(load("action.yml")["outputs"]) == set(outputs_of(page, 0, {})) | own


def test_the_readme_s_workflow_lints_clean(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    workflow = tmp_path / "gradients.yml"
    workflow.write_text(next(block for block in blocks if "gradbot/gradbot@" in block))
    run("actionlint", str(workflow))
    run("zizmor", "--offline", "--config", ".github/zizmor.yml", str(workflow))
    run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(workflow))
