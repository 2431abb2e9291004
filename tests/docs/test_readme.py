"""The README says what the code does: its tables are made from the code, and drift fails."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradbot.cli.main import COMMANDS
from gradbot.config import Config, TargetTable, markdown_table
from gradbot.errors import ExitCode
from gradbot.model import CheckName

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())


def commands_table() -> str:
    rows = [f"| `gradbot {name}` | {help_text} |" for name, help_text in COMMANDS.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows]) + "\n"


def inputs_table() -> str:
    rows = []
    for name, given in ACTION["inputs"].items():
        default = str(given.get("default", ""))
        shown = f"`{default}`" if default and "${{" not in default else "the job's own" if default else ""
        rows.append(f"| `{name}` | {shown} | {' '.join(given['description'].split())} |")
    return "\n".join(["| input | default | meaning |", "|---|---|---|", *rows]) + "\n"


def outputs_table() -> str:
    rows = [f"| `{name}` | {' '.join(given['description'].split())} |" for name, given in ACTION["outputs"].items()]
    return "\n".join(["| output | meaning |", "|---|---|", *rows]) + "\n"


TABLES = {
    "commands": commands_table,
    "inputs": inputs_table,
    "outputs": outputs_table,
    "config": lambda: markdown_table(Config),
    "targets": lambda: markdown_table(TargetTable),
}


def section(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", README.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_the_code(name: str) -> None:
    """`python -m docs.test_readme`, run in `tests`, writes them anew."""
    assert section(name) == TABLES[name]()


def test_every_exit_code_is_documented() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", README.read_text(), re.MULTILINE)}
    assert {int(code) for code in ExitCode} <= codes


def test_every_check_is_documented() -> None:
    text = README.read_text().partition("## Checks")[2].partition("## Configuration")[0]
    assert {check.value for check in CheckName} == set(re.findall(r"`([a-z_]+)`", text)) & {c.value for c in CheckName}


def test_every_demo_file_is_explained() -> None:
    modules = {path.stem for path in (ROOT / "gradbot" / "demo").glob("*.py")} - {"__init__", "cases", "ops"}
    assert modules <= set(re.findall(r"`(\w+):\w+`", README.read_text()))


def test_the_two_commands_pin_torch_in_the_same_pip_command() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    setups = [block for block in blocks if "venv" in block]
    assert len(setups) == 2
    for block in setups:
        (install,) = [part for part in block.split("&&") if " install " in part]
        assert "torch==2.13.0" in shlex.split(install)


def test_the_workflow_snippet_is_valid_and_keeps_tokens_from_the_check() -> None:
    (snippet,) = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    jobs = yaml.safe_load(snippet)["jobs"]
    assert jobs["check"]["permissions"] == {"contents": "read"}
    assert jobs["publish"]["steps"][-1]["with"] == {"publish": "only"}


def test_files_that_are_named_exist() -> None:
    for name in re.findall(r"`((?:docs|reports|examples|tests|\.github)/[\w./-]*)`", README.read_text()):
        assert (ROOT / name).exists(), name
    assert (ROOT / "docs" / "run.svg").exists()


def write_tables() -> None:
    """Put the tables into the README."""
    text = README.read_text()
    for name, table in TABLES.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text = re.sub(pattern, lambda found, table=table: found[1] + table() + found[2], text, flags=re.DOTALL)
    README.write_text(text)


if __name__ == "__main__":
    write_tables()
