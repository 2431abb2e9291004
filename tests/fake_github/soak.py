"""One of several processes that publish at once, and the trouble they get into."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from fake_github.state import (
    BAD_GATEWAY,
    BAD_GATEWAY_AFTER_WRITE,
    DEAD_LINE,
    DEAD_LINE_AFTER_WRITE,
    SECONDARY,
    TOO_MANY,
    Fault,
)
from gradbot.config import CommentMode
from gradbot.github.client import Client, Timing
from gradbot.github.comment import Marker, Wanted, publish
from gradbot.github.context import Context

PACE = Timing(request=5, tries=6, backoff=0.02, secondary=0.1, longest=10.0, between_writes=0.0, settle=0.3)
FAULTS = (BAD_GATEWAY, BAD_GATEWAY_AFTER_WRITE, DEAD_LINE, DEAD_LINE_AFTER_WRITE, SECONDARY, TOO_MANY)


def trouble(seed: int, rate: float) -> Callable[[str, str], Fault | None]:
    """Faults at random."""
    chance = random.Random(seed)

    def befalls(method: str, path: str) -> Fault | None:
        return chance.choice(FAULTS) if chance.random() < rate else None

    return befalls


def worker(context: Context, number: int, runs: Sequence[int], seed: int) -> tuple[int, int]:
    """Publish the results of these runs one after another; (how many went through, how many writes they took)."""
    chance, done, writes = random.Random(seed), 0, 0
    client = Client(context, PACE)
    viewer = client.viewer()
    for run in runs:
        time.sleep(chance.uniform(0, 0.02))
        marker = Marker(id="gradbot", sha=context.head_sha, run=run, attempt=1, red=run % 2 == 1)
        outcome = publish(
            client,
            number,
            viewer,
            Wanted(marker=marker, text=f"result of run {run}"),
            CommentMode.ALWAYS,
            still_wanted=lambda: client.pull_request(number).head_sha == context.head_sha,
            sleep=time.sleep,
            settle=PACE.settle,
            tries=40,
        )
        done, writes = done + 1, writes + outcome.writes
    return done, writes
