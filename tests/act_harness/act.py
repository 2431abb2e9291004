"""One run of a workflow by act: its own repository, an event, shims for foreign actions, a clean environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_github.server import Fake
from fake_github.state import REPOSITORY

ROOT = Path(__file__).parents[2]
SHIMS = Path(__file__).parent / "shims"
_USES = re.compile(r"uses:\s*([\w.-]+/[\w.-]+)(/[\w./-]+)?@([\w.-]+)")
ACT = Path(sys.executable).with_name("act")


@dataclass(kw_only=True)
class Finished:
    """What a run left behind."""

    code: int
    log: str
    lines: list[dict[str, Any]]

    def printed(self) -> str:
        """What the steps printed."""
        return "\n".join(str(line.get("msg", "")) for line in self.lines if line.get("raw_output"))

    def job(self, name: str) -> str:
        """How a job ended: "success" or "failure"; "" where it did not run."""
        results = [line["jobResult"] for line in self.lines if line.get("jobResult") and name in str(line.get("job"))]
        return results[-1] if results else ""


@dataclass(kw_only=True)
class Act:
    """A folder to run workflows in. `prepared` is what `gradbot check` is to report, by shard; "real" runs it."""

    folder: Path
    fake: Fake
    files: Mapping[str, str] = field(default_factory=dict)
    prepared: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        workflow: Path,
        event: str,
        payload: Mapping[str, Any],
        *,
        run: int,
        attempt: int = 1,
        token: str = "good",
        sha: str = "",
        real_check: bool = False,
        timeout: int = 300,
        interrupt_at: str = "",
        stubs: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run a workflow file as GitHub would for this event."""
        home, repository = self.folder / "home", self._repository(workflow)
        action = _action(self.folder)
        event_file = self.folder / "event.json"
        event_file.write_text(json.dumps(payload))
        binaries = self._binaries(real_check, stubs or {})
        variables = {
            **self.fake.environment(),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": str(run),
            "GITHUB_RUN_ATTEMPT": str(attempt),
            "GITHUB_WORKFLOW_REF": f"{REPOSITORY}/.github/workflows/{workflow.name}@refs/heads/main",
            "ACT_SOURCE": str(repository),
            "GRADBOT_ACTION": str(action),
            "FAKE_UPLOADS": self.fake.blob_url,
            "GRADBOT_PUBLISH_PACE": "0.01",
            **({"GITHUB_SHA": sha} if sha else {}),
            **(env or {}),
        }
        variables.pop("GITHUB_TOKEN")  # only where a workflow asks for github.token
        command = [str(ACT), event, "-W", f".github/workflows/{workflow.name}", "-e", str(event_file), "--json"]
        # one job at a time: jobs that start together trip over each other in act's own cache of actions
        command += ["--concurrent-jobs", "1"]
        command += ["--no-cache-server", "--no-skip-checkout", "--action-offline-mode", "-s", f"GITHUB_TOKEN={token}"]
        command += ["-P", "ubuntu-latest=-self-hosted", "-P", "self-hosted=-self-hosted", "-P", "gpu=-self-hosted"]
        command += [part for name, value in variables.items() for part in ("--env", f"{name}={value}")]
        command += [part for each in self._replacements(workflow, action) for part in ("--local-repository", each)]
        clean = {"HOME": str(home), "PATH": f"{binaries}:/usr/bin:/bin", "LANG": "C.UTF-8"}
        process = subprocess.Popen(
            command, cwd=repository, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        deadline = threading.Timer(timeout, process.kill)
        deadline.start()
        log = []
        assert process.stdout is not None
        for line in process.stdout:
            log.append(line)
            if interrupt_at and interrupt_at in line:
                process.send_signal(signal.SIGINT)  # what cancelling a run comes to
                interrupt_at = ""
        process.stdout.close()
        code = process.wait()
        deadline.cancel()
        lines = [json.loads(line) for line in log if line.startswith("{")]
        return Finished(code=code, log="".join(log), lines=lines)

    def _repository(self, workflow: Path) -> Path:
        """A git repository with the workflow and the test's files."""
        root = self.folder / "repository"
        shutil.rmtree(root, ignore_errors=True)
        (root / ".github/workflows").mkdir(parents=True)
        shutil.copy(workflow, root / ".github/workflows")
        if "uses: ./\n" in workflow.read_text():
            shutil.copytree(_action(self.folder), root, dirs_exist_ok=True)
        for name, content in {"pyproject.toml": "[tool.gradbot]\n", **self.files}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
        for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
            subprocess.run([*git, *arguments], cwd=root, check=True, env={**os.environ, "HOME": str(self.folder)})
        return root

    def _binaries(self, real_check: bool, stubs: Mapping[str, str]) -> Path:
        """A `python` that is this one, but hands out prepared reports for `gradbot check` and installs nothing.

        `stubs` stand in for other commands, and as `-m NAME` for Python modules: the bash text that each runs.
        """
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        prepared = self.folder / "prepared"
        shutil.rmtree(prepared, ignore_errors=True)
        prepared.mkdir()
        for shard, text in self.prepared.items():
            (prepared / f"{shard.replace('/', '-of-')}.json").write_text(text)
        wrapper = folder / "python"
        stand_in = f'exec {sys.executable} {Path(__file__).with_name("stand_in.py")} {prepared} "$@"'
        cases = {"-m pip": 'echo "pip $*"', "-m venv": f'mkdir -p "${{!#}}/bin" && cp {wrapper} "${{!#}}/bin/python"'}
        cases |= {name: text for name, text in stubs.items() if name.startswith("-m ")}
        cases |= {} if real_check else {"-m gradbot check": stand_in}
        lines = ['words="$* "', 'words="${words#-I }"', 'case "$words" in']
        lines += [f'"{name} "*) {text}; exit ;;' for name, text in cases.items()]
        wrapper.write_text("\n".join(["#!/bin/bash", *lines, "esac", f'exec {sys.executable} "$@"', ""]))
        wrapper.chmod(0o755)
        for name, text in stubs.items():
            if not name.startswith("-m "):
                (folder / name).write_text(f"#!/bin/bash\n{text}\n")
                (folder / name).chmod(0o755)
        return folder

    def _replacements(self, workflow: Path, action: Path) -> list[str]:
        """The shim for every foreign action that the workflow or the action itself uses, at the very sha."""
        texts = [path.read_text() for path in (workflow, *action.rglob("*.yml"), *ROOT.glob(".github/workflows/*.yml"))]
        used = {(match[1], match[3]) for text in texts for match in _USES.finditer(text)}
        return [
            f"{name}@{ref}={action if name == 'gradbot/gradbot' else SHIMS / name.split('/')[1]}"
            for name, ref in sorted(used)
            if name == "gradbot/gradbot" or (SHIMS / name.split("/")[1]).is_dir()
        ]


def _action(inside: Path) -> Path:
    """The action's own files, as a checkout of them would be; gradbot itself is installed already."""
    target = inside / "action"
    if not target.exists():
        (target / "gradbot").mkdir(parents=True)
        shutil.copy(ROOT / "action.yml", target)
        shutil.copy(ROOT / "gradbot/version.py", target / "gradbot")
        for folder in ("action", "plan", "join", ".github"):
            shutil.copytree(ROOT / folder, target / folder)
    return target
