"""Workers are kept, replaced and shared out as tasks ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from run.pools import pool, run, task

PID = "import os; value = os.getpid()"


def pid(ended: object) -> int:
    return ended.reply["body"]["value"]  # type: ignore[attr-defined, no-any-return]


def test_a_worker_is_kept_from_task_to_task() -> None:
    ended = run([task(str(number), PID) for number in range(5)])
    assert len({pid(each) for each in ended.values()}) == 1


def test_a_fresh_task_gets_a_process_that_ran_nothing_else() -> None:
    ended = run([task("a", PID, seconds=3.0), task("b", PID, seconds=2.0, fresh=True), task("c", PID, seconds=1.0)])
    assert pid(ended["b"]) != pid(ended["a"])


def test_the_longest_task_runs_first() -> None:
    order = []
    with pool() as workers:
        for name, seconds in (("short", 1.0), ("long", 9.0), ("middle", 5.0)):
            workers.submit(task(name, PID, seconds=seconds))
        order = [ended.task.key for ended in workers.run()]
    assert order == ["long", "middle", "short"]


def test_code_of_another_module_gets_another_process_than_one_whose_import_replaced_functions() -> None:
    patch = "import json; json.dumps = None"
    look = "import json; value = [json.dumps is None, __import__('os').getpid()]"
    ended = run([task("patching", look, imports=patch, seconds=2.0), task("other", look, seconds=1.0)])
    assert pid(ended["patching"])[0] is True  # type: ignore[index]
    assert pid(ended["other"])[0] is False  # type: ignore[index]


SLEEPER = """
import os, pathlib, time
pathlib.Path(f"{folder}/began-{os.getpid()}").touch()
time.sleep(600)
"""


def test_a_run_that_is_stopped_waits_for_no_task_and_kills_its_workers(tmp_path: Path) -> None:
    def began() -> list[str]:
        return [path.name.removeprefix("began-") for path in tmp_path.glob("began-*")]

    with pool(slots=2) as workers:
        for name in "abc":
            workers.submit(task(name, f"folder = {str(tmp_path)!r}\n{SLEEPER}", timeout=900.0))
        while len(began()) < 2:
            workers._dispatch()
            workers._wait()
        workers.stopped = True
        assert list(workers.run()) == []  # else it would yield the ends of tasks that it waited for
    assert len(began()) == 2
    assert not [pid for pid in began() if Path(f"/proc/{pid}").exists()]


def test_a_bad_exit_is_kept_with_its_suspects() -> None:
    handler = "import atexit, os; atexit.register(lambda: os.abort())"
    with pool() as workers:
        workers.submit(task("suspect", handler, seconds=2.0))
        workers.submit(task("innocent", PID, seconds=1.0))
        assert {ended.task.key for ended in workers.run()} == {"suspect", "innocent"}
        workers.drain()
        (death,) = workers.bad_exits
    assert death.crash.signal == "SIGABRT"
    assert [suspect.key for suspect in death.suspects] == ["suspect"]


@pytest.mark.parametrize("fork", [True, False], ids=["forked", "spawned"])
def test_workers_are_the_same_however_they_start(fork: bool) -> None:
    tasks = [
        task("right", "value = 1"),
        task("segfault", "import ctypes; ctypes.string_at(0)"),
        task("again", "value = 2"),
    ]
    with pool(fork=fork) as workers:
        for each in tasks:
            workers.submit(each)
        ended = {each.task.key: each for each in workers.run()}
    assert pid(ended["right"]) == 1
    assert pid(ended["again"]) == 2
    assert ended["segfault"].crash is not None
    assert ended["segfault"].crash.signal == "SIGSEGV"


def test_output_of_a_dead_worker_is_kept_to_its_last_lines() -> None:
    code = "import os\nfor i in range(9999): os.write(1, b'line %d \\x00\\xff\\n' % i)\nos._exit(1)"
    crash = run([task("loud", code)])["loud"].crash
    assert crash is not None
    assert crash.output_tail.endswith("line 9998 \\x00\\xff")
    assert len(crash.output_tail) < 10_000
    assert crash.output_tail.count("\n") < 60
