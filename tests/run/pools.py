"""Pools of tiny workers for tests."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

from gradbot.run.pool import Ended, Lane, Pool, PoolOptions, Task
from gradbot.run.process import Launch

HERE = Path(__file__).parent


def pool(*, slots: int = 1, memory_limit: int = 0, token: str = "", fork: bool = True) -> Pool:
    """A pool of `slots` tiny workers on the lane cpu."""
    launch = Launch(
        python=sys.executable,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        cwd=os.getcwd(),
        module="tiny_worker",
        arguments=(str(memory_limit),),
        fork=fork,
    )
    options = PoolOptions(
        launch=launch,
        lanes=(Lane(name="cpu", device="cpu", slots=slots),),
        token=token or uuid.uuid4().hex,
        memory_limit=memory_limit * 2,
    )
    return Pool(options)


def task(key: str, code: str = "", *, imports: str = "", timeout: float = 20.0, **options: object) -> Task:
    """A task that runs `code`."""
    message = {"do": "case", "code": code, "imports": imports}
    return Task(key=key, message=message, timeout=timeout, module=key, **options)  # type: ignore[arg-type]


def run(tasks: list[Task], **options: int) -> dict[str, Ended]:
    """How each task ended."""
    with pool(**options) as pool_:
        for each in tasks:
            pool_.submit(each)
        return {ended.task.key: ended for ended in pool_.run()}
