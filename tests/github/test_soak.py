"""Many publishes at once, with faults at random, end with one comment that shows the newest result."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest
from fake_github.scenes import FAST, context, state
from fake_github.server import running
from fake_github.soak import trouble, worker
from fake_github.state import SECONDARY_RETRY_AFTER, Token

from gradbot.github.client import Client, RequestError
from gradbot.github.comment import marker_of

PROCESSES, PUBLISHES, FIRST = 4, 200, 1000
WRITES_ALLOWED, SECONDS = 40, 6.0  # as tight for this pace as GitHub's 80 a minute is for jobs at theirs


@pytest.mark.slow
def test_200_publishes_from_4_processes_end_with_the_newest_result() -> None:
    made = state(write_limit=(WRITES_ALLOWED, SECONDS))
    made.tokens = {f"publisher {number}": Token() for number in range(PROCESSES)}
    made.trouble = trouble(seed=20, rate=0.1)
    made.faults = [("PATCH", "/comments", SECONDARY_RETRY_AFTER)] * PROCESSES
    with running(made) as fake:
        jobs = [replace(context(fake), token=token) for token in made.tokens]
        shares = [range(FIRST + start, FIRST + PUBLISHES, PROCESSES) for start in range(PROCESSES)]
        with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
            going = [
                pool.submit(worker, job, 7, list(share), seed)
                for seed, (job, share) in enumerate(zip(jobs, shares, strict=True))
            ]
            results = [each.result(timeout=240) for each in going]
    (only,) = made.of_bot(7)
    marker = marker_of(only.body)
    assert marker is not None
    assert marker.run == FIRST + PUBLISHES - 1
    assert f"result of run {marker.run}" in only.body
    assert sum(done for done, _ in results) == PUBLISHES
    assert made.most_writes_in_window <= WRITES_ALLOWED
    assert made.told_to_wait
    assert made.hasty_writes == []  # who was told to wait waited that long
    asked = [status for method, path, status in made.requests if method != "GET" and "/issues/" in path]
    assert len(asked) < 2 * PUBLISHES  # faults and limits included


def test_a_publisher_that_does_not_wait_as_it_was_told_is_seen() -> None:
    made = state(write_limit=(1, 60.0))
    made.tokens = {"hasty": Token(), "patient": Token()}
    with running(made) as fake:
        hasty, patient = (Client(replace(context(fake), token=token), FAST) for token in made.tokens)
        patient.create_comment(7, "fills the window")
        for client in (hasty, patient, hasty, hasty):
            with pytest.raises(RequestError):
                client.create_comment(7, "too many")
    assert made.hasty_writes == ["hasty", "hasty"]


def test_a_publisher_that_waits_as_it_was_told_is_not() -> None:
    made = state(write_limit=(1, 0.5))
    with running(made) as fake:
        client = Client(context(fake), FAST)
        client.create_comment(7, "fills the window")
        with pytest.raises(RequestError) as refused:
            client.create_comment(7, "too many")
        assert refused.value.wait is not None
        time.sleep(refused.value.wait)
        client.create_comment(7, "in time")
    assert made.refused_writes == 1
    assert made.hasty_writes == []
