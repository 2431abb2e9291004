"""A run on a project in which nearly everything goes wrong: each thing costs itself, and is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from run.projects import SCALE, Silent, check, write

from gradbot.model import CaseResult, Outcome, Report

CASES = """
import ctypes, json, locale, os, signal, sys, time
import torch
import gradbot
from p.scale import Scale


def sample(name, misbehave=lambda: None, where="backward", factor=2.0):
    return gradbot.Sample(torch.ones(2, dtype=torch.float64), factor, misbehave, where).named(name)


def raiser(error):
    def misbehave():
        raise error
    return misbehave


class Rude(Exception):
    def __str__(self):
        raise RuntimeError("no")


def break_json():
    json.dumps = json.loads = None
    json.JSONEncoder.encode = None


def disorder():
    os.chdir("/")
    os.environ["LEFT_BEHIND"] = "1"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.setrecursionlimit(5000)
    sys.stdout = None


def close_all():
    os.closerange(3, 4096)


def bad_exit():
    import atexit
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGSEGV))


def deterministic(wanted):
    assert torch.are_deterministic_algorithms_enabled() is wanted


def inspect():
    assert "LEFT_BEHIND" not in os.environ
    assert json.loads(json.dumps([1])) == [1]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert sys.stdout is not None
    assert torch.get_default_dtype() is torch.float32
    assert os.path.exists("pyproject.toml")


@gradbot.cases(Scale, checks=["backward"])
def scales():
    yield sample("right")
    yield sample("segfault forward", lambda: ctypes.string_at(0), "forward")
    yield sample("segfault backward", lambda: ctypes.string_at(0))
    yield sample("exit", lambda: os._exit(7))
    yield sample("sys.exit", lambda: sys.exit(4))
    yield sample("interrupt", raiser(KeyboardInterrupt()))
    yield sample("rude", raiser(Rude()))
    yield sample("umlaut", raiser(ValueError("Größe → 0")))
    yield sample("größe", lambda: print("\\0\\udcff"))
    yield sample("json", break_json)
    yield sample("disorder", disorder)
    yield sample("dtype", lambda: torch.set_default_dtype(torch.float64))
    yield sample("closed", close_all)
    yield sample("hang", lambda: time.sleep(100))
    yield sample("memory", lambda: torch.empty(1 << 50))
    yield sample("group", lambda: torch.distributed.all_reduce(torch.ones(1)))
    yield sample("bad exit", bad_exit)
    yield sample("deterministic", lambda: deterministic(True)).options(deterministic_algorithms=True)
    yield sample("not deterministic", lambda: deterministic(False))
    yield sample("inspect", inspect)


@gradbot.cases(Scale)
def deadly_generator():
    yield sample("before")
    os.abort()


@gradbot.cases(Scale)
def raising_generator():
    raise ValueError("no samples today")
    yield
"""

FILES = {
    "p/__init__.py": "",
    "p/scale.py": SCALE,
    "p/deadly.py": "import os\nimport torch\nclass Deadly(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x\nos.kill(os.getpid(), 11)\n",  # noqa: E501
    "p/raising.py": "import torch\nclass Raising(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x\nraise ImportError('needs a GPU')\n",  # noqa: E501
    "p/exiting.py": "import sys\nsys.exit(3)\n",
    "p/patching.py": "import json, os\njson.dumps = None\nos.environ['PATCHED'] = '1'\n",
    "cases_p.py": CASES,
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return check(write(tmp_path_factory.mktemp("faulty"), FILES), "p", timeout=3.0)


@pytest.fixture(scope="module")
def results(report: Report) -> dict[str, CaseResult]:
    return {result.case.name: result for result in report.results}


@pytest.mark.parametrize(
    ("name", "outcome", "cause", "detail", "stage"),
    [
        ("segfault forward", Outcome.CRASHED, "signal", "SIGSEGV", "forward"),
        ("segfault backward", Outcome.CRASHED, "signal", "SIGSEGV", "backward"),
        ("exit", Outcome.CRASHED, "exit", 7, "backward"),
        ("closed", Outcome.CRASHED, "protocol", "", "backward"),
        ("hang", Outcome.TIMED_OUT, "timeout", "3 s", "backward"),
        ("bad exit", Outcome.CRASHED, "signal", "SIGSEGV", "exit"),
    ],
)
def test_a_death_is_named_with_its_cause_and_stage(
    results: dict[str, CaseResult], name: str, outcome: Outcome, cause: str, detail: object, stage: str
) -> None:
    result = results[name]
    assert result.crash is not None
    assert (result.outcome, result.crash.cause, result.crash.stage) == (outcome, cause, stage)
    assert detail in (result.crash.signal, result.crash.exit_code, result.crash.limit)


def test_where_a_case_hung_is_in_its_last_output(results: dict[str, CaseResult]) -> None:
    crash = results["hang"].crash
    assert crash is not None
    assert "cases_p.py" in crash.output_tail


@pytest.mark.parametrize("name", ["sys.exit", "interrupt", "rude", "umlaut"])
def test_an_exception_is_the_cases_own(results: dict[str, CaseResult], name: str) -> None:
    assert results[name].outcome is Outcome.ERRORED


def test_a_limit_that_was_hit_is_named(results: dict[str, CaseResult]) -> None:
    result = results["memory"]
    assert result.outcome is Outcome.ERRORED
    assert result.crash is not None
    assert result.crash.cause == "memory"
    assert result.crash.limit


def test_what_needs_a_process_group_is_skipped_with_the_reason(results: dict[str, CaseResult]) -> None:
    assert (results["group"].outcome, results["group"].reason) == (Outcome.SKIPPED, "process_group")


@pytest.mark.parametrize(
    "name", ["right", "größe", "json", "disorder", "dtype", "deterministic", "not deterministic", "inspect"]
)
def test_the_others_are_as_without_them(results: dict[str, CaseResult], name: str) -> None:
    assert results[name].outcome is Outcome.PASSED


def test_modules_that_cannot_be_imported_are_listed_with_the_reason(report: Report) -> None:
    problems = {problem.module: problem for problem in report.problems}
    assert set(problems) == {"p.deadly", "p.raising", "p.exiting"}
    deadly = problems["p.deadly"].crash
    assert deadly is not None
    assert (deadly.cause, deadly.signal, deadly.stage) == ("signal", "SIGSEGV", "import")
    assert "needs a GPU" in problems["p.raising"].reason
    assert "SystemExit" in problems["p.exiting"].reason


def test_targets_of_modules_that_cannot_be_imported_are_unchecked_with_the_reason(report: Report) -> None:
    assert {(each.target, each.reason) for each in report.unchecked} == {
        ("p.deadly:Deadly", "import_failed"),
        ("p.raising:Raising", "import_failed"),
    }


def test_a_generator_that_dies_costs_its_own_cases(results: dict[str, CaseResult]) -> None:
    died = results["deadly_generator"]
    assert died.outcome is Outcome.CRASHED
    assert died.crash is not None
    assert (died.crash.signal, died.crash.stage) == ("SIGABRT", "inputs")


def test_a_generator_that_raises_costs_its_own_cases(results: dict[str, CaseResult]) -> None:
    raised = results["raising_generator"]
    assert raised.outcome is Outcome.ERRORED
    assert "no samples today" in str(raised.details)


def test_the_environment_is_recorded(report: Report) -> None:
    (environment,) = report.environments
    assert environment.name == "cpu"
    assert environment.torch
    assert {"threads", "cuda_matmul_tf32", "cudnn_tf32"} <= set(environment.flags)
    assert {result.worker for result in report.results if result.outcome is not Outcome.SKIPPED} == {"cpu"}


STATEFUL = """
import random
import torch
import gradbot
from p.scale import Scale

count = 0


@gradbot.cases(Scale, checks=["backward", "determinism"])
def many():
    global count
    count += 1
    for number in range(8):
        x = torch.randn(3, dtype=torch.float64) * random.random()
        yield gradbot.Sample(x, 2.0 if number % 3 else 2.0 + x[0].item(), lambda: torch.rand(1), "backward")
"""


def _comparable(report: Report) -> list[object]:
    return [
        (result.case.id, result.outcome, [(c.check, c.outcome, c.findings) for c in result.checks])
        for result in report.results
    ]


def test_verdicts_do_not_depend_on_order_jobs_or_sharding(tmp_path: Path) -> None:
    root = write(tmp_path, {"p/__init__.py": "", "p/scale.py": SCALE, "cases_p.py": STATEFUL})
    first = Silent()
    forward = check(root, "p", progress=first)
    backward_order = {name: float(place + 1) for place, name in enumerate(first.order)}
    second = Silent()
    backward = check(root, "p", progress=second, durations=backward_order)
    assert second.order == first.order[::-1]
    parallel = check(root, "p", jobs=3)
    shards = [check(root, "p", shard=(number, 2)) for number in (1, 2)]
    assert _comparable(forward) == _comparable(backward) == _comparable(parallel)
    joined = sorted(_comparable(shards[0]) + _comparable(shards[1]), key=lambda each: each[0])  # type: ignore[index]
    assert joined == _comparable(forward)
    assert all(shard.results for shard in shards)


FLAKY = """
import os
import torch
import gradbot
from pathlib import Path
from p.scale import Scale

COUNTER = Path(__file__).with_name("counter")


def sometimes():
    COUNTER.touch()
    runs = int(COUNTER.read_text() or 0) + 1
    COUNTER.write_text(str(runs))
    if runs == 1:
        raise RuntimeError("only the first time")


@gradbot.cases(Scale, checks=["backward"])
def flaky():
    yield gradbot.Sample(torch.ones(2, dtype=torch.float64), 2.0, sometimes, "forward").named("flaky")
    yield gradbot.Sample(torch.ones(2, dtype=torch.float64), 2.0, lambda: 1 / 0, "backward").named("always")
    yield gradbot.Sample(torch.ones(2, dtype=torch.float64), 2.0, lambda: 0, "backward").named("right")
"""


def test_a_failing_case_is_run_again_and_the_report_says_n_of_m(tmp_path: Path) -> None:
    root = write(tmp_path, {"p/__init__.py": "", "p/scale.py": SCALE, "cases_p.py": FLAKY})
    results = {result.case.name: result for result in check(root, "p", retries=2).results}
    flaky, always = results["flaky"].attempts, results["always"].attempts
    assert flaky is not None
    assert always is not None
    assert (results["flaky"].outcome, flaky.runs, flaky.failures) == (Outcome.ERRORED, 3, 1)
    assert (results["always"].outcome, always.runs, always.failures) == (Outcome.ERRORED, 3, 3)
    assert sorted(always.seeds) == [0, 0, 1]
    assert results["right"].attempts is None


def test_a_device_that_is_not_there_is_skipped_with_the_reason(tmp_path: Path) -> None:
    root = write(tmp_path, {"p/__init__.py": "", "p/scale.py": SCALE, "cases_p.py": FLAKY})
    report = check(root, "p", devices=("cpu", "xpu"))
    skipped = [result for result in report.results if result.case.device == "xpu"]
    assert {(result.outcome, result.reason) for result in skipped} == {(Outcome.SKIPPED, "device_missing")}
    assert "xpu" in str(skipped[0].details["message"])
    assert any(result.outcome is Outcome.PASSED for result in report.results)
