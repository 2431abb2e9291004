"""The action's scripts, run as the runner runs them: what checked code can see, and what is taken for a command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from act_harness.act import ROOT

SPY = """
import os, pathlib
seen = []
pid = os.getpid()
while pid > 1:
    seen.append(pathlib.Path(f"/proc/{pid}/environ").read_bytes())
    seen.append(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    if pid == int(os.environ["TOP_PID"]):
        break
    pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
print(b"\\n".join(seen).decode(errors="replace").replace("\\0", "\\n"))
print("::set-output name=x::1")
"""
SECRETS = {
    "GITHUB_TOKEN": "ghs_canary0000",
    "ACTIONS_RUNTIME_TOKEN": "canary-runtime",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "canary-oidc",
    "GITHUB_ENV": "/canary/env",
    "GITHUB_PATH": "/canary/path",
    "GITHUB_OUTPUT": "/canary/output",
    "GITHUB_STATE": "/canary/state",
    "GITHUB_STEP_SUMMARY": "/canary/summary",
    "INPUT_TOKEN": "canary-input",
}
INPUTS = dict.fromkeys(
    [
        "INPUT_PACKAGES",
        "INPUT_CONFIG",
        "INPUT_DEVICE",
        "INPUT_DTYPE",
        "INPUT_MODE",
        "INPUT_PLAN",
        "INPUT_SHARD",
        "INPUT_FAIL_ON",
        "INPUT_BASELINE",
    ],
    "",
)


def environment(tmp_path: Path, python: Path, **inputs: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "ACTION_PATH": str(ROOT),
        "PYTHON": str(python),
        "REPORT": str(tmp_path / "report.json"),
        "JUNIT": str(tmp_path / "junit.xml"),
        **INPUTS,
        **SECRETS,
        **inputs,
    }


def stand_in(tmp_path: Path, body: str) -> Path:
    """A `python` that does something else in gradbot's place."""
    script = tmp_path / "spy.py"
    script.write_text(body)
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/bash\nexec {sys.executable} {script} "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_checked_code_finds_no_secret_in_its_own_or_any_parent_s_environment(tmp_path: Path) -> None:
    python = stand_in(tmp_path, SPY)
    step = 'export TOP_PID=$$; exec bash "$ACTION_PATH/action/check.sh"'  # as the runner starts a step's shell
    done = subprocess.run(
        ["bash", "-c", step], env=environment(tmp_path, python), capture_output=True, text=True, timeout=30, check=True
    )
    assert "TOP_PID" in done.stdout
    assert [value for value in SECRETS.values() if value in done.stdout] == []


def test_what_is_printed_stands_between_a_stop_and_a_resume_that_nobody_can_guess(tmp_path: Path) -> None:
    python = stand_in(tmp_path, "print('::error::planted')\nprint('no newline', end='')")
    outputs = []
    for _ in range(2):
        done = subprocess.run(
            ["bash", str(ROOT / "action/check.sh")],
            env=environment(tmp_path, python),
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        lines = done.stdout.splitlines()
        stop = re.fullmatch(r"::stop-commands::([0-9a-f]{32})", lines[0])
        assert stop is not None
        assert lines[-1] == f"::{stop[1]}::"
        assert lines[1] == "::error::planted"
        outputs.append(stop[1])
    assert outputs[0] != outputs[1]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_cancelled_step_lets_the_check_finish_its_report(tmp_path: Path, sent: signal.Signals) -> None:
    body = """
import signal, sys, time
def end(*_):
    open(sys.argv[sys.argv.index("--json") + 1], "w").write("finished")
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(30)
"""
    process = subprocess.Popen(
        ["bash", str(ROOT / "action/check.sh")],
        env=environment(tmp_path, stand_in(tmp_path, body)),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != "ready":
        pass
    process.send_signal(sent)
    rest, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    assert (tmp_path / "report.json").read_text() == "finished"
    assert rest.rstrip().endswith("::")


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 137])
def test_the_exit_code_is_the_check_s(tmp_path: Path, code: int) -> None:
    python = stand_in(tmp_path, f"import os; os._exit({code})")
    done = subprocess.run(
        ["bash", str(ROOT / "action/check.sh")], env=environment(tmp_path, python), capture_output=True, timeout=30
    )
    assert done.returncode == code


HOSTILE = [
    "$(touch {0})",
    "`touch {0}`",
    "a; touch {0}",
    "x' ; touch {0} ; '",
    '"; touch {0} #',
    "--json=/dev/null\ntouch {0}",
]


FORWARDED = {
    "check": sorted(INPUTS),
    "plan": ["INPUT_PACKAGES", "INPUT_CONFIG", "INPUT_DEVICE", "INPUT_DTYPE", "INPUT_SHARDS"],
    "tell": ["INPUT_CONFIG", "INPUT_BASELINE"],
    "publish": [
        "INPUT_CONFIG",
        "INPUT_PUBLISH",
        "INPUT_FAIL_ON",
        "INPUT_COMMENT_ID",
        "INPUT_COMMENT_MODE",
        "INPUT_STRICT_PUBLISH",
        "INPUT_EXPECT_SHARDS",
        "INPUT_BASE_WORKFLOW",
        "INPUT_BASELINE",
        "INPUT_ARTIFACT_NAME",
        "INPUT_CA_BUNDLE",
    ],
}
LISTS = {"INPUT_PACKAGES", "INPUT_EXPECT_SHARDS"}
SWITCHES = {"INPUT_PUBLISH", "INPUT_STRICT_PUBLISH"}


@pytest.mark.parametrize(("script", "name"), [(script, name) for script, names in FORWARDED.items() for name in names])
def test_no_input_is_run_or_split_into_options(tmp_path: Path, script: str, name: str) -> None:
    planted, seen = tmp_path / "planted", tmp_path / "arguments.json"
    body = f"import json, os, sys; open({str(seen)!r}, 'w').write(json.dumps([sys.argv[1:], dict(os.environ)]))"
    python = stand_in(tmp_path, body)
    (tmp_path / "report.json").write_text("{}")
    others = dict.fromkeys(FORWARDED[script], "") | {"PLAN": str(tmp_path / "p"), "MATRIX": str(tmp_path / "m")}
    for pattern in HOSTILE:
        value = pattern.format(planted)
        env = environment(tmp_path, python, **{**others, name: value})
        command = ["bash", str(ROOT / f"action/{script}.sh")]
        subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=True)
        assert not planted.exists()
        arguments, given = json.loads(seen.read_text())
        if name in LISTS:
            words = [word for word in arguments if word in value.split()]
            assert words == value.split()
            assert name != "INPUT_PACKAGES" or arguments[arguments.index("--") + 1 :] == words
        elif name not in SWITCHES:
            assert value in arguments or given.get("GRADBOT_BASELINE") == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INPUT_SHARD", "1/2\nreport=/etc/passwd"),
        ("INPUT_SHARD", "../../x"),
        ("INPUT_COMMENT_ID", "a b"),
        ("INPUT_COMMENT_ID", "x\nartifact=y"),
        ("INPUT_ARTIFACT_NAME", "a/b"),
        ("INPUT_PUBLISH", "yes"),
        ("INPUT_JUNIT_PATH", "a\nb=c"),
        ("INPUT_WORKING_DIRECTORY", "/nowhere/at/all"),
    ],
)
def test_a_name_that_would_break_out_is_refused_in_words(tmp_path: Path, name: str, value: str) -> None:
    output = tmp_path / "output"
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(output),
        "INPUT_ARTIFACT_NAME": "gradbot-report",
        "INPUT_COMMENT_ID": "",
        "INPUT_SHARD": "",
        "INPUT_JUNIT_PATH": "",
        "INPUT_WORKING_DIRECTORY": ".",
        "INPUT_PUBLISH": "no",
        name: value,
    }
    done = subprocess.run(["bash", str(ROOT / "action/names.sh")], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert done.stdout.startswith("::error title=gradbot::")
    assert not output.exists()


@pytest.mark.parametrize(
    "entry",
    [
        '{"include": [{"shard": "1/2", "device": "cpu\\nx=1"}]}',
        '{"include": [{"shard": "1/2; x", "device": "cpu"}]}',
        '{"include": [{"shard": "", "device": "cpu"}]}',
    ],
)
def test_a_matrix_that_planned_code_made_up_is_refused(tmp_path: Path, entry: str) -> None:
    (tmp_path / "matrix.json").write_text(entry)
    done = subprocess.run(
        [sys.executable, "-I", str(ROOT / "action/matrix.py"), str(tmp_path / "matrix.json")],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert "::error title=gradbot::" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("publish", "fresh"), [("only", True), ("no", False), ("same-job", False)])
def test_what_only_publishes_never_uses_a_gradbot_that_lies_around(tmp_path: Path, publish: str, fresh: bool) -> None:
    calls, version = tmp_path / "calls", (ROOT / "gradbot/version.py").read_text().split('"')[-2]
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/bash\necho "$*" >>{calls}\n'
        'case "$*" in\n'
        '*"-m venv "*) mkdir -p "${!#}/bin"; cp "$0" "${!#}/bin/python" ;;\n'
        f"*__version__*) echo {version} ;;\n"
        "esac\n"
    )
    python.chmod(0o755)
    output = tmp_path / "output"
    env = {
        "PATH": os.environ["PATH"],
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(output),
        "ACTION_PATH": str(ROOT),
        "INPUT_PYTHON": str(python),
        "INPUT_TORCH": "",
        "INPUT_TORCH_INDEX_URL": "",
        "INPUT_PUBLISH": publish,
    }
    subprocess.run(["bash", str(ROOT / "action/install.sh")], env=env, timeout=30, check=True)
    installed = [line for line in calls.read_text().splitlines() if "pip install" in line]
    used = output.read_text().strip().removeprefix("python=")
    assert bool(installed) is fresh
    assert (used != str(python)) is fresh
