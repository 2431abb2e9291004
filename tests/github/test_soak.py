"""Many publishes at once, with faults at random, end with one comment that shows the newest result."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
from fake_github.scenes import context, state
from fake_github.server import running
from fake_github.soak import trouble, worker

from gradbot.github.comment import marker_of

PROCESSES, PUBLISHES, FIRST = 4, 200, 1000
WRITES_ALLOWED, SECONDS = 40, 6.0  # as tight for this pace as GitHub's 80 a minute is for jobs at theirs


@pytest.mark.slow
def test_200_publishes_from_4_processes_end_with_the_newest_result() -> None:
    made = state(write_limit=(WRITES_ALLOWED, SECONDS))
    made.trouble = trouble(seed=20, rate=0.1)
    with running(made) as fake:
        job = context(fake)
        shares = [range(FIRST + start, FIRST + PUBLISHES, PROCESSES) for start in range(PROCESSES)]
        with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
            going = [pool.submit(worker, job, 7, list(share), seed) for seed, share in enumerate(shares)]
            results = [each.result(timeout=240) for each in going]
    (only,) = made.of_bot(7)
    marker = marker_of(only.body)
    assert marker is not None
    assert marker.run == FIRST + PUBLISHES - 1
    assert f"result of run {marker.run}" in only.body
    assert sum(done for done, _ in results) == PUBLISHES
    assert made.most_writes_in_window <= WRITES_ALLOWED
    # each is told once a window, and waits; who hammers would be told at every turn
    assert made.refused_writes <= PUBLISHES // 4
    asked = [status for method, path, status in made.requests if method != "GET" and "/issues/" in path]
    assert len(asked) < 2 * PUBLISHES  # faults and limits included
