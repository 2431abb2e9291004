"""`gradbot publish` as a process: what it prints, writes and exits with, and what it does not import."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_github.scenes import BASE, HEAD, WORKFLOW, report, state
from fake_github.server import Fake, running
from fake_github.state import REPOSITORY

from gradbot import codec
from gradbot.model import Report


@pytest.fixture
def fake() -> Iterator[Fake]:
    with running(state()) as served:
        yield served


def job(fake: Fake, tmp_path: Path, token: str = "good") -> dict[str, str]:
    event = {
        "pull_request": {
            "number": 7,
            "head": {"ref": "feature", "sha": HEAD, "repo": {"full_name": REPOSITORY}},
            "base": {"ref": "main", "sha": BASE},
        }
    }
    (tmp_path / "event.json").write_text(json.dumps(event))
    return {
        **fake.environment(token),
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_EVENT_NAME": "pull_request",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_SHA": HEAD,
        "GITHUB_RUN_ID": "812",
        "GITHUB_WORKFLOW_REF": f"{REPOSITORY}/{WORKFLOW}@refs/heads/main",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GRADBOT_PUBLISH_PACE": "0.01",
    }


def gradbot(tmp_path: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **(env or {})}
    command = [sys.executable, "-m", "gradbot", "publish", *arguments]
    return subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=60, check=False)


def written(tmp_path: Path, what: Report) -> str:
    (tmp_path / "report.json").write_text(codec.dumps(what))
    return "report.json"


def test_a_report_is_posted(fake: Fake, tmp_path: Path) -> None:
    done = gradbot(tmp_path, written(tmp_path, report(wrong=["kernels:SoftCap"])), env=job(fake, tmp_path))
    assert done.returncode == 1
    (comment,) = fake.state.of_bot(7)
    assert "SoftCap" in comment.body
    assert "SoftCap" in (tmp_path / "summary").read_text()
    assert "verdict<<" in (tmp_path / "output").read_text()


def test_a_dry_run_prints_the_very_body_that_is_sent_then(fake: Fake, tmp_path: Path) -> None:
    path = written(tmp_path, report(wrong=["kernels:SoftCap"]))
    dry = gradbot(tmp_path, path, "--dry-run", env=job(fake, tmp_path))
    assert fake.state.comments == {}
    assert not (tmp_path / "output").exists()
    gradbot(tmp_path, path, env=job(fake, tmp_path))
    assert fake.state.of_bot(7)[0].body in dry.stdout
    assert (tmp_path / "summary").read_text() in dry.stdout


def test_a_dry_run_works_outside_of_any_job(tmp_path: Path) -> None:
    done = gradbot(tmp_path, written(tmp_path, report(wrong=["kernels:SoftCap"])), "--dry-run")
    assert done.returncode == 1
    assert f"would send POST /repos/{REPOSITORY}/issues/<pull request>/comments" in done.stdout
    assert "SoftCap" in done.stdout


def test_outside_of_a_job_it_says_where_it_runs(tmp_path: Path) -> None:
    done = gradbot(tmp_path, written(tmp_path, report(right=["a"])))
    assert done.returncode == 2
    assert "runs in a GitHub Actions job" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["gone.json"], "there is no such report"),
        (["broken.json"], "not JSON"),
        (["--comment-id", "a b"], "comment-id"),
        (["--baseline", "gone.json"], "gone.json"),
        (["--base-report", "gone.json"], "gone.json"),
        (["--output", "novalue"], "NAME=VALUE"),
    ],
)
def test_a_mistake_is_one_clear_line(fake: Fake, tmp_path: Path, arguments: list[str], why: str) -> None:
    (tmp_path / "broken.json").write_text("{")
    done = gradbot(tmp_path, *arguments, env=job(fake, tmp_path))
    assert done.returncode == 2
    assert why in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_neither_torch_nor_numpy_nor_checked_code_is_imported(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text("raise SystemExit('imported')")
    path = written(tmp_path, report(wrong=["kernels:SoftCap"]))
    probe = (
        "import sys; from gradbot.cli.main import run; code = run(['publish', 'report.json']); "
        "print('LOADED', sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'numpy', 'kernels'}), code)"
    )
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **job(fake, tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=60, check=True
    )
    assert path
    assert "LOADED [] 1" in done.stdout


def test_the_token_is_written_nowhere(fake: Fake, tmp_path: Path) -> None:
    canary = "ghs_canary0000"
    fake.state.tokens[canary] = fake.state.tokens["good"]
    fake.state.trouble = _grumble()
    env = {**job(fake, tmp_path, canary), "GRADBOT_TRACEBACK": "1"}
    done = gradbot(tmp_path, written(tmp_path, report(wrong=["a"])), env=env)
    assert fake.state.of_bot(7)
    everything = (
        done.stdout
        + done.stderr
        + "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    )
    assert canary not in everything


def _grumble() -> object:
    from fake_github.state import BAD_GATEWAY, SECONDARY

    faults = [BAD_GATEWAY, SECONDARY, BAD_GATEWAY]
    return lambda method, path: faults.pop() if faults and "/issues/" in path else None


@pytest.mark.parametrize("count", [400, 2000])
def test_however_much_is_wrong_the_comment_fits_and_says_what_was_left_out(
    fake: Fake, tmp_path: Path, count: int
) -> None:
    names = [f"kernels.module{number:05}:{'LongOpName' * 6}" for number in range(count)]
    done = gradbot(tmp_path, written(tmp_path, report(wrong=names)), env=job(fake, tmp_path))
    assert done.returncode == 1
    (comment,) = fake.state.of_bot(7)
    assert len(comment.body) <= 65_536
    assert comment.body.count("<details>") == comment.body.count("</details>")
    assert (tmp_path / "summary").stat().st_size <= 1_000_000
    annotated = [line for line in done.stdout.splitlines() if line.startswith("::error")]
    assert len(annotated) <= 10


@pytest.mark.parametrize("name", ["a'b; touch x", "$(touch x)", "a b", "`x`", "ns::op\\", "-rf"])
def test_a_command_in_the_comment_can_be_pasted_whatever_the_name(fake: Fake, tmp_path: Path, name: str) -> None:
    gradbot(tmp_path, written(tmp_path, report(wrong=[name])), env=job(fake, tmp_path))
    commands = re.findall(r"^gradbot check .*$", fake.state.of_bot(7)[0].body, re.MULTILINE)
    assert commands
    for command in commands:
        words = shlex.split(command)
        assert any(name == word or name in word for word in words[2:])
        assert not {";", "touch"} & set(words)


def test_a_command_that_could_hide_something_is_left_out(fake: Fake, tmp_path: Path) -> None:
    gradbot(tmp_path, written(tmp_path, report(wrong=["evil\x1b[2K\nname"])), env=job(fake, tmp_path))
    assert "gradbot check" not in fake.state.of_bot(7)[0].body


def test_reports_of_shards_in_folders_are_joined(fake: Fake, tmp_path: Path) -> None:
    for number, name in (("1", "a"), ("2", "b")):
        made = report(right=[name], shard=f"{number}/2", expected=("1/2", "2/2"))
        (tmp_path / "reports" / number).mkdir(parents=True)
        (tmp_path / "reports" / number / "report.json").write_text(codec.dumps(made))
    done = gradbot(tmp_path, "reports", env=job(fake, tmp_path))
    assert done.returncode == 0
    assert "2 of 2 targets" in fake.state.of_bot(7)[0].body
