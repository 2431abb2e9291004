"""The action and the examples, run by act against the fake GitHub: what the pull request holds at the end."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from act_harness.act import ACT, ROOT, Act
from fake_github.scenes import BASE, HEAD, report, state
from fake_github.server import Fake, running
from fake_github.state import REPOSITORY, Pull, Run, sha

from gradbot import codec
from gradbot.version import __version__

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not ACT.exists(), reason="act is not installed beside this Python")]
EXAMPLES = ROOT / "examples/workflows"
CPU = EXAMPLES / "cpu.yml"
SHARDS = Path(__file__).parent / "workflows/shards.yml"
PUSHED = sha("pushed")
WRONG = codec.dumps(report(wrong=["kernels:SoftCap"]))
RIGHT = codec.dumps(report(right=["kernels:SoftCap"]))
KERNELS = {
    "kernels/__init__.py": "",
    "kernels/softcap.py": """
import torch

import gradbot


class SoftCap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 0.5 * grad * (1 - x.tanh() ** 2)


@gradbot.cases(SoftCap)
def cases():
    yield gradbot.Sample(torch.randn(3, 4, dtype=torch.float64, requires_grad=True))
""",
}


@pytest.fixture
def fake() -> Iterator[Fake]:
    with running(state()) as served:
        yield served


def started(fake: Fake, number: int, workflow: str, **more: Any) -> None:
    """A run that GitHub knows of, as it does from the moment it starts one."""
    given = {"head_sha": HEAD, "status": "in_progress", "conclusion": None, **more}
    fake.state.runs[number] = Run(id=number, path=f".github/workflows/{workflow}", **given)


def pull_request(head: str = HEAD, repository: str = REPOSITORY, ref: str = "feature") -> dict[str, Any]:
    return {
        "action": "synchronize",
        "number": 7,
        "pull_request": {
            "number": 7,
            "head": {"ref": ref, "sha": head, "repo": {"full_name": repository}},
            "base": {"ref": "main", "sha": BASE},
        },
        "repository": {
            "full_name": REPOSITORY,
            "default_branch": "main",
            "name": "kernels",
            "owner": {"login": "octo"},
        },
    }


def workflow_run(workflow: str, repository: str = REPOSITORY) -> dict[str, Any]:
    """The completed run 812, as the event that starts a second stage tells of it."""
    return {
        "id": 812,
        "run_attempt": 1,
        "event": "pull_request",
        "head_sha": HEAD,
        "head_branch": "feature",
        "head_repository": {"id": 5, "full_name": repository},
        "path": f".github/workflows/{workflow}",
        "conclusion": "failure",
        "pull_requests": [],
    }


def body(fake: Fake) -> str:
    (only,) = fake.state.of_bot(7)
    return only.body


def run_cpu(fake: Fake, folder: Path, prepared: str, *, number: int = 812, head: str = HEAD, **more: Any) -> Any:
    if number not in fake.state.runs or fake.state.runs[number].path != ".github/workflows/cpu.yml":
        started(fake, number, "cpu.yml", head_sha=head)
    folder.mkdir(exist_ok=True)
    act = Act(folder=folder, fake=fake, prepared={"1/1": prepared})
    return act.run(CPU, "pull_request", pull_request(head), run=number, **more)


def test_a_pull_request_gets_its_first_comment(fake: Fake, tmp_path: Path) -> None:
    done = run_cpu(fake, tmp_path, WRONG)
    assert "SoftCap" in body(fake)
    assert "state=red" in body(fake)
    assert done.job("check") == "failure"


def test_the_next_push_updates_the_comment_and_turns_it_green(fake: Fake, tmp_path: Path) -> None:
    run_cpu(fake, tmp_path / "first", WRONG)
    first = fake.state.of_bot(7)[0].id
    fake.state.pulls[7].head_sha = PUSHED
    fake.state.merge_bases[BASE, PUSHED] = BASE
    green = codec.dumps(report(right=["kernels:SoftCap"], head=PUSHED))
    done = run_cpu(fake, tmp_path / "second", green, number=813, head=PUSHED)
    assert fake.state.of_bot(7)[0].id == first
    assert "state=green" in body(fake)
    assert PUSHED in body(fake)
    assert (done.job("check"), done.job("publish")) == ("success", "success")


def test_a_stale_run_leaves_the_newer_result_alone(fake: Fake, tmp_path: Path) -> None:
    fake.state.pulls[7].head_sha = PUSHED
    run_cpu(
        fake, tmp_path / "new", codec.dumps(report(right=["kernels:SoftCap"], head=PUSHED)), number=813, head=PUSHED
    )
    newer = body(fake)
    run_cpu(fake, tmp_path / "old", WRONG)
    assert body(fake) == newer


def test_of_two_shards_one_dies_and_is_missed(fake: Fake, tmp_path: Path) -> None:
    started(fake, 812, "shards.yml")
    first = codec.dumps(report(right=["kernels:Rope"], shard="1/2", expected=("1/2", "2/2")))
    act = Act(folder=tmp_path, fake=fake, prepared={"1/2": first, "2/2": "die"})
    done = act.run(SHARDS, "pull_request", pull_request(), run=812)
    assert "2/2" in body(fake)
    assert "state=red" in body(fake)
    assert done.job("publish") == "failure"


def test_a_rerun_of_the_failed_shard_mends_the_comment(fake: Fake, tmp_path: Path) -> None:
    started(fake, 812, "shards.yml")
    both = ("1/2", "2/2")
    first = codec.dumps(report(right=["kernels:Rope"], shard="1/2", expected=both))
    Act(folder=tmp_path, fake=fake, prepared={"1/2": first, "2/2": "die"}).run(
        SHARDS, "pull_request", pull_request(), run=812
    )
    fake.state.runs[812].attempt = 2
    second = codec.dumps(report(right=["kernels:SoftCap"], shard="2/2", expected=both, attempt=2))
    again = Act(folder=tmp_path, fake=fake, prepared={"1/2": "die", "2/2": second})
    done = again.run(SHARDS, "pull_request", pull_request(), run=812, attempt=2)
    assert "state=green" in body(fake)
    assert "2 of 2 targets" in body(fake)
    assert done.job("publish") == "success"


def test_a_fork_gets_its_comment_from_the_second_stage(fake: Fake, tmp_path: Path) -> None:
    fork = "mallory/kernels"
    fake.state.pulls[7] = Pull(number=7, head_sha=HEAD, head_repository=fork, base_sha=BASE)
    started(fake, 812, "fork-check.yml", head_repository=fork)
    act = Act(folder=tmp_path, fake=fake, prepared={"1/1": WRONG})
    act.run(EXAMPLES / "fork-check.yml", "pull_request", pull_request(repository=fork), run=812, token="read-only")
    assert fake.state.of_bot(7) == []
    started(fake, 900, "fork-publish.yml", event="workflow_run", head_sha=BASE, head_branch="main")
    completed = {
        "workflow_run": workflow_run("fork-check.yml", repository=fork),
        "repository": {"full_name": REPOSITORY, "default_branch": "main"},
    }
    done = act.run(EXAMPLES / "fork-publish.yml", "workflow_run", completed, run=900)
    assert "SoftCap" in body(fake)
    assert "fork" in body(fake)
    assert done.job("publish") == "success"


def test_a_read_only_token_loses_the_comment_and_nothing_else(fake: Fake, tmp_path: Path) -> None:
    done = run_cpu(fake, tmp_path, RIGHT, token="read-only")
    assert fake.state.of_bot(7) == []
    assert (done.job("check"), done.job("publish")) == ("success", "success")
    assert "Traceback" not in done.log


def test_enterprise_addresses_and_a_busy_pull_request(tmp_path: Path) -> None:
    with running(state(), enterprise=True) as fake:
        for number in range(300):
            fake.state.comment(7, "someone", f"talk {number}")
        run_cpu(fake, tmp_path / "first", WRONG)
        run_cpu(fake, tmp_path / "again", WRONG, number=813)
        assert "run=813" in body(fake)


def test_two_packages_of_a_repository_have_a_comment_each(fake: Fake, tmp_path: Path) -> None:
    started(fake, 812, "monorepo.yml")
    files = {f"packages/{name}/pyproject.toml": "[tool.gradbot]\n" for name in ("attention", "optics")}
    act = Act(folder=tmp_path, fake=fake, files=files, prepared={"1/1": WRONG})
    act.run(EXAMPLES / "monorepo.yml", "pull_request", pull_request(), run=812)
    assert sorted(each.body.split()[1] for each in fake.state.of_bot(7)) == ["gradbot:attention", "gradbot:optics"]


def test_a_pull_request_is_compared_with_the_report_that_the_push_kept(fake: Fake, tmp_path: Path) -> None:
    started(fake, 700, "cpu.yml", event="push", head_sha=BASE, head_branch="main")
    push = {"ref": "refs/heads/main", "repository": {"full_name": REPOSITORY, "default_branch": "main"}}
    known = codec.dumps(report(wrong=["kernels:SoftCap"], head=BASE))
    act = Act(folder=tmp_path, fake=fake, prepared={"1/1": known})
    done = act.run(CPU, "push", push, run=700, sha=BASE)
    assert done.job("publish") in ("", "skipped")
    fake.state.runs[700].status, fake.state.runs[700].conclusion = "completed", "failure"
    run_cpu(fake, tmp_path / "pull", codec.dumps(report(wrong=["kernels:SoftCap", "kernels:Rope"])))
    assert BASE[:7] in body(fake)
    assert "also fails on the base" in body(fake)


def test_the_nightly_report_serves_as_base(fake: Fake, tmp_path: Path) -> None:
    started(fake, 700, "nightly.yml", event="schedule", head_sha=BASE, head_branch="main")
    act = Act(folder=tmp_path, fake=fake, prepared={"1/1": codec.dumps(report(wrong=["kernels:SoftCap"], head=BASE))})
    schedule = {"schedule": "17 3 * * *", "repository": {"full_name": REPOSITORY, "default_branch": "main"}}
    done = act.run(EXAMPLES / "nightly.yml", "schedule", schedule, run=700, sha=BASE)
    assert done.job("check") == "failure"
    assert [each.name for each in fake.state.artifacts.values()] == ["gradbot-report.gradbot.1-of-1.1"]


def test_what_checked_code_prints_is_no_command_of_the_runner(fake: Fake, tmp_path: Path) -> None:
    done = run_cpu(fake, tmp_path, WRONG)
    planted = [line for line in done.lines if "planted" in str(line.get("msg"))]
    assert planted
    assert [line for line in planted if line.get("level") == "error" or line.get("command") == "error"] == []


def test_no_token_is_printed(fake: Fake, tmp_path: Path) -> None:
    fake.state.tokens["ghs_canary0000"] = fake.state.tokens["good"]
    done = run_cpu(fake, tmp_path, WRONG, token="ghs_canary0000")
    assert "SoftCap" in body(fake)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and ".git/" not in str(path)]
    leaks = [str(path) for path in written if b"ghs_canary0000" in path.read_bytes()]
    assert "ghs_canary0000" not in done.log
    assert leaks == []


SPY = """
import os, pathlib
seen, pid = [repr(sorted(os.environ.items()))], os.getpid()
while pid > 1 and pathlib.Path(f"/proc/{pid}/comm").read_text().strip() != "act":
    for name in ("environ", "cmdline"):
        seen.append(pathlib.Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace"))
    pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
pathlib.Path("WHERE").write_text("|".join(seen))
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_a_package_that_spies_on_its_surroundings_finds_no_token(fake: Fake, tmp_path: Path) -> None:
    fake.state.tokens["ghs_canary0000"] = fake.state.tokens["good"]
    started(fake, 812, "cpu.yml")
    found = tmp_path / "found"
    files = {**KERNELS, "kernels/__init__.py": SPY.replace("WHERE", str(found))}
    act = Act(folder=tmp_path, fake=fake, files=files)
    secret = {"ACTIONS_RUNTIME_TOKEN": "ghs_canary1111"}
    act.run(CPU, "pull_request", pull_request(), run=812, real_check=True, token="ghs_canary0000", env=secret)
    assert "kernels.softcap:SoftCap" in body(fake)
    assert "gradbot" in found.read_text()
    hidden = ["ghs_canary", "outputcmd.txt", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE"]
    assert [word for word in hidden if word in found.read_text()] == []


def test_planned_shards_on_two_kinds_of_runner_are_joined_and_published(fake: Fake, tmp_path: Path) -> None:
    started(fake, 812, "cpu-and-gpu.yml")
    both = ("1/2", "2/2")
    cpu = codec.dumps(report(right=["kernels:Rope"], shard="1/2", expected=both))
    cuda = codec.dumps(report(wrong=["kernels:SoftCap"], shard="2/2", expected=both))
    act = Act(folder=tmp_path, fake=fake, files=KERNELS, prepared={"1/2": cpu, "2/2": cuda})
    done = act.run(EXAMPLES / "cpu-and-gpu.yml", "pull_request", pull_request(), run=812)
    assert "SoftCap" in body(fake), done.printed()[-3000:]
    assert "parts=2" in body(fake)
    (joined,) = (each.data for each in fake.state.artifacts.values() if each.name == "gradbot.gradbot.1")
    assert sorted(zipfile.ZipFile(io.BytesIO(joined)).namelist()) == ["junit.xml", "report.html", "report.json"]


def test_a_package_of_somebody_s_is_checked_for_real(fake: Fake, tmp_path: Path) -> None:
    started(fake, 812, "cpu.yml")
    act = Act(folder=tmp_path, fake=fake, files=KERNELS)
    done = act.run(CPU, "pull_request", pull_request(), run=812, real_check=True)
    assert "kernels.softcap:SoftCap" in body(fake), done.printed()[-3000:]
    assert "0.5" in body(fake)
    assert done.job("check") == "failure"


def test_gradbot_finds_in_its_own_demo_what_is_planted_there_and_nothing_else(fake: Fake, tmp_path: Path) -> None:
    started(fake, 812, "gradients.yml")
    act = Act(folder=tmp_path, fake=fake)
    done = act.run(ROOT / ".github/workflows/gradients.yml", "pull_request", pull_request(), run=812, real_check=True)
    assert done.job("check") == "success", done.printed()[-3000:]
    started(fake, 900, "publish.yml", event="workflow_run", head_sha=BASE, head_branch="main")
    fake.state.runs[812].status = "completed"
    completed = {"workflow_run": workflow_run("gradients.yml"), "repository": {"default_branch": "main"}}
    act.run(ROOT / ".github/workflows/publish.yml", "workflow_run", completed, run=900)
    assert "state=green" in body(fake)
    assert "expected" in body(fake)


def test_a_cancelled_run_leaves_the_comment_as_it_was(fake: Fake, tmp_path: Path) -> None:
    """act kills what runs; that a check which is asked to end still writes its report is shown in test_scripts."""
    run_cpu(fake, tmp_path / "first", WRONG)
    before = body(fake)
    done = run_cpu(fake, tmp_path / "second", "hang", number=813, interrupt_at="still checking")
    assert "still checking" in done.printed()
    assert body(fake) == before


def test_one_job_that_trusts_the_pull_request_checks_and_publishes(fake: Fake, tmp_path: Path) -> None:
    started(fake, 812, "same-job.yml")
    act = Act(folder=tmp_path, fake=fake, prepared={"1/1": WRONG})
    done = act.run(Path(__file__).parent / "workflows/same-job.yml", "pull_request", pull_request(), run=812)
    assert "SoftCap" in body(fake)
    assert "parts=1" in body(fake)
    assert "verdict=wrong failures=1 comment=" + str(fake.state.of_bot(7)[0].id) in done.printed()


def test_the_readme_s_workflow_does_what_it_says(fake: Fake, tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    workflow = tmp_path / "gradients.yml"
    workflow.write_text(next(block for block in blocks if "gradbot/gradbot@" in block))
    started(fake, 812, "gradients.yml")
    act = Act(folder=tmp_path, fake=fake, prepared={"1/1": WRONG})
    done = act.run(workflow, "pull_request", pull_request(), run=812)
    assert "SoftCap" in body(fake)
    assert done.job("check") == "failure"


def test_this_repository_s_own_checks_run_and_are_summed_up(fake: Fake, tmp_path: Path) -> None:
    started(fake, 812, "ci.yml")
    called = tmp_path / "called"
    tools = {name: f'echo "{name} $*" >>{called}' for name in ("ruff", "mypy", "lint-imports")}
    tests = {"-m pytest": f'echo "pytest $*" >>{called}; echo "<testsuites/>" >junit.xml'}
    act = Act(folder=tmp_path, fake=fake)
    workflow = ROOT / ".github/workflows/ci.yml"
    done = act.run(workflow, "pull_request", pull_request(), run=812, stubs={**tools, **tests})
    assert done.job("passed") == "success", done.printed()[-2000:]
    lines = called.read_text().splitlines()
    assert sum("pytest" in line for line in lines) == 5
    assert {line.split()[0] for line in lines} >= {"ruff", "mypy", "lint-imports"}
    failing = act.run(workflow, "pull_request", pull_request(), run=813, stubs={**tools, **tests, "mypy": "exit 1"})
    assert failing.job("passed") == "failure"


def test_a_tag_makes_a_release_and_moves_the_major_tag(fake: Fake, tmp_path: Path) -> None:
    started(fake, 812, "release.yml", event="push")
    called, tag = tmp_path / "called", f"v{__version__}"
    stubs = {
        "gh": f'echo "gh $*" >>{called}',
        "-m build": "mkdir -p dist && touch dist/gradbot_ci.whl",
    }
    files = {"gradbot/version.py": (ROOT / "gradbot/version.py").read_text()}
    act = Act(folder=tmp_path, fake=fake, files=files)
    push = {"ref": f"refs/tags/{tag}", "repository": {"full_name": REPOSITORY, "default_branch": "main"}}
    workflow = ROOT / ".github/workflows/release.yml"
    done = act.run(workflow, "push", push, run=812, stubs=stubs, env={"GITHUB_REF": f"refs/tags/{tag}"})
    assert "attested dist/*" in done.printed()
    created, moved = called.read_text().splitlines()
    assert created.startswith(f"gh release create {tag} dist/gradbot_ci.whl ")
    assert moved.startswith(f"gh api --method PATCH repos/{REPOSITORY}/git/refs/tags/{tag.split('.', maxsplit=1)[0]} ")


def test_a_tag_that_is_not_the_version_makes_no_release(fake: Fake, tmp_path: Path) -> None:
    called = tmp_path / "called"
    files = {"gradbot/version.py": '__version__ = "9.9.9"\n'}
    act = Act(folder=tmp_path, fake=fake, files=files)
    push = {"ref": "refs/tags/v1.0.0", "repository": {"full_name": REPOSITORY, "default_branch": "main"}}
    stubs = {"gh": f'echo "gh $*" >>{called}', "-m build": "exit 0"}
    act.run(ROOT / ".github/workflows/release.yml", "push", push, run=812, stubs=stubs)
    assert not called.exists()
