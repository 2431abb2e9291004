"""Journals, durations, provenance, environments, devices: the small things around a run."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gradbot import codec
from gradbot.errors import UsageError
from gradbot.model import (
    Case,
    CaseResult,
    CheckResult,
    InputSource,
    Outcome,
    Report,
    Run,
    Target,
    TargetKind,
    Unchecked,
)
from gradbot.run import durations, lanes, machine
from gradbot.run.devices import differences
from gradbot.run.journal import Journal, recover, write_report
from gradbot.run.output import Tail
from gradbot.run.provenance import describe
from gradbot.run.secrets import is_secret, without_secrets
from gradbot.run.supervisor import worker_environment


def result(name: str, outcome: Outcome = Outcome.PASSED, device: str = "cpu", seconds: float = 1.0) -> CaseResult:
    case = Case(
        id=f"p:A[{name}]{device}:float64",
        target="p:A",
        name=name,
        source=InputSource.DECLARED,
        reference=f"declared:c.py:{name}#0",
        device=device,
    )
    checks = (CheckResult(check="backward", outcome=outcome),)
    return CaseResult(case=case, outcome=outcome, checks=checks, seconds=seconds)


REPORT = Report(
    targets=tuple(Target(id=f"p:{name}", kind=TargetKind.FUNCTION) for name in "ABC"),
    unchecked=(Unchecked(target="p:B", reason="no_inputs"),),
)


def test_a_journal_gives_the_report_of_a_killed_run(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", REPORT)
    journal.add(result("a"))
    journal.add(result("b", Outcome.FAILED))
    journal.add(result("a", Outcome.FAILED))
    journal.close()
    report = recover(tmp_path / "journal.jsonl")
    assert {each.case.name: each.outcome for each in report.results} == {"a": Outcome.FAILED, "b": Outcome.FAILED}
    assert report.run.interrupted
    assert [(each.target, each.reason) for each in report.unchecked] == [("p:B", "no_inputs"), ("p:C", "interrupted")]


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, REPORT)
    journal.add(result("a"))
    journal.add(result("b"))
    journal.close()
    path.write_bytes(path.read_bytes()[:-20])
    assert [each.case.name for each in recover(path).results] == ["a"]


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nonsense\n")
    with pytest.raises(UsageError, match="not the journal"):
        recover(tmp_path / "x")


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    write_report(REPORT, tmp_path / "deep" / "report.json")
    assert codec.loads((tmp_path / "deep" / "report.json").read_bytes(), Report) == REPORT
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report.json"]


def test_durations_are_kept_from_run_to_run(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    assert durations.read(path) == {}
    durations.write(path, {"old": 2.0}, [result("a", seconds=1.25), result("b", Outcome.CRASHED, seconds=9.0)])
    assert durations.read(path) == {"old": 2.0, "p:A[a]cpu:float64": 1.25}


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"a": "x", "b": true, "c": -1, "d": 1e99}'])
def test_durations_that_are_no_use_are_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "durations.json").write_text(content)
    assert set(durations.read(tmp_path / "durations.json")) <= {"b"}


def _repository(root: Path) -> str:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=trunk"]
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *arguments], cwd=root, check=True)
    subprocess.run([*git, "remote", "add", "origin", "git@github.com:me/kernels.git"], cwd=root, check=True)
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def _describe(root: Path, **environ: str) -> Run:
    return describe(root=root, environ=environ, command=("gradbot", "check"), seed=3, version="1", started=0.0)


def test_a_run_at_home_knows_its_commit(tmp_path: Path) -> None:
    sha = _repository(tmp_path)
    run = _describe(tmp_path)
    assert (run.head_sha, run.checked_out_sha, run.branch, run.repository) == (sha, sha, "trunk", "me/kernels")
    assert (run.started, run.seed, run.attempt) == ("1970-01-01T00:00:00.000+00:00", 3, 1)


def test_a_run_outside_git_has_no_commit(tmp_path: Path) -> None:
    run = _describe(tmp_path)
    assert (run.head_sha, run.checked_out_sha, run.repository) == ("", "", "")


def test_on_a_pull_request_the_head_is_the_events_and_the_checkout_is_gits(tmp_path: Path) -> None:
    sha = _repository(tmp_path)
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"head": {"sha": "a" * 40}, "base": {"sha": "b" * 40}}}))
    run = _describe(
        tmp_path,
        GITHUB_ACTIONS="true",
        GITHUB_EVENT_PATH=str(event),
        GITHUB_REPOSITORY="me/kernels",
        GITHUB_SHA="c" * 40,
        GITHUB_HEAD_REF="feature",
        GITHUB_RUN_ID="77",
        GITHUB_RUN_ATTEMPT="2",
    )
    assert (run.head_sha, run.base_sha, run.checked_out_sha) == ("a" * 40, "b" * 40, sha)
    assert (run.branch, run.ci_run, run.attempt, run.repository) == ("feature", "77", 2, "me/kernels")


@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "ACTIONS_RUNTIME_TOKEN",
        "ACTIONS_RUNTIME_URL",
        "ACTIONS_CACHE_URL",
        "GITHUB_ENV",
        "GITHUB_PATH",
        "GITHUB_OUTPUT",
        "GITHUB_STATE",
        "GITHUB_STEP_SUMMARY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "MY_PASSWORD",
        "SOME_API_KEY",
        "SSH_AUTH_SOCK",
    ],
)
def test_secrets_and_runner_files_are_kept_from_workers(name: str) -> None:
    assert is_secret(name)
    assert name not in worker_environment({name: "x", "PATH": "/bin"}, threads=1)


@pytest.mark.parametrize("name", ["PATH", "HOME", "CUDA_VISIBLE_DEVICES", "GITHUB_SHA", "TOKENIZERS_PARALLELISM"])
def test_the_rest_of_the_environment_stays(name: str) -> None:
    assert without_secrets({name: "x"}) == {name: "x"}


def test_threads_are_shared_out() -> None:
    assert worker_environment({"OMP_NUM_THREADS": "64"}, threads=2)["OMP_NUM_THREADS"] == "2"


def test_each_accelerator_gets_a_worker_that_sees_it_alone() -> None:
    there = {"devices": {"cpu": 1, "cuda": 2}}
    cpu = lanes.cpu_lane(4, interpret_triton=True)
    made = lanes.lanes_for({"cpu", "cuda", "cuda:1"}, there, cpu, {"CUDA_VISIBLE_DEVICES": "3,5"})
    assert [(lane.name, lane.device, lane.slots, dict(lane.env)) for lane in made] == [
        ("cpu", "cpu", 4, {"TRITON_INTERPRET": "1"}),
        ("cuda:0", "cuda", 1, {"CUDA_VISIBLE_DEVICES": "3"}),
        ("cuda:1", "cuda", 1, {"CUDA_VISIBLE_DEVICES": "5"}),
        ("cuda:1", "cuda:1", 1, {}),
    ]


def test_devices_are_there_or_not_for_a_reason() -> None:
    there = {"devices": {"cpu": 1, "cuda": 2, "xpu": 0}, "reasons": {"xpu": "built without xpu"}}
    assert lanes.presence(there) == {
        "cpu": "",
        "cuda": "",
        "xpu": "built without xpu",
        "cpu:0": "",
        "cuda:0": "",
        "cuda:1": "",
    }


def test_a_difference_between_devices_is_a_finding() -> None:
    same = [result("a"), result("a", device="cuda:0")]
    assert differences(same) == ()
    (finding,) = differences([result("b"), result("b", Outcome.FAILED, device="cuda"), *same])
    assert (finding.rule, finding.check) == ("GB109", "backward")
    assert finding.details == {"target": "p:A", "case": "b", "dtype": "float64", "right_on": "cpu", "wrong_on": "cuda"}


@pytest.mark.parametrize("outcome", [Outcome.INCONCLUSIVE, Outcome.UNSUPPORTED, Outcome.ERRORED])
def test_no_verdict_on_a_device_is_no_difference(outcome: Outcome) -> None:
    assert differences([result("a"), result("a", outcome, device="cuda")]) == ()


def test_one_device_alone_is_no_difference() -> None:
    other = result("b", Outcome.FAILED)
    assert differences([result("a"), replace(other, case=replace(other.case, name="a"))]) == ()


def test_a_tail_keeps_the_end_and_shows_what_it_can() -> None:
    tail = Tail()
    for number in range(5000):
        tail.feed(b"\x1b[31mline %d\x1b[0m\r\n" % number)
    tail.feed("größe \x00 ".encode() + b"\xff\n")
    lines = tail.text().split("\n")
    assert lines[-2:] == ["line 4999", "größe \\x00 \\xff"]
    assert len(lines) == 40


def test_of_a_stack_only_frames_of_others_are_kept() -> None:
    tail = Tail()
    own = Path(durations.__file__).parents[1]
    stack = [
        "Thread 0x1 (most recent call first):",
        '  File "/project/p/ops.py", line 3 in backward',
        f'  File "{own}/engine/api.py", line 5 in check_case',
        f'  File "{own}/worker/main.py", line 9 in main',
        f'  File "{own}/demo/crash.py", line 9 in backward',
        '  File "<string>", line 11 in <module>',
    ]
    tail.feed("\n".join(stack).encode())
    assert tail.text().split("\n") == [stack[0], stack[1], stack[4]]


def test_the_machine_has_something() -> None:
    assert machine.cores() >= 1
    assert machine.memory_bytes() > machine.GIB // 8
    assert machine.default_memory_limit(1000) == 2 * machine.GIB
    assert (machine.bytes_text(512 << 20), machine.bytes_text(4 << 30)) == ("512 MiB", "4.0 GiB")
