"""Joining reports is associative, commutative and idempotent, counts nothing twice and knows what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradbot import codec
from gradbot.errors import UsageError
from gradbot.model import (
    Case,
    CaseResult,
    CheckResult,
    Environment,
    ImportProblem,
    InputSource,
    Note,
    Outcome,
    Report,
    Run,
    Shard,
    Target,
    TargetKind,
    Unchecked,
)
from gradbot.report.merge import merge, missing

SHARDS = ("1/3", "2/3", "3/3")


def case(target: str, name: str = "a", device: str = "cpu") -> Case:
    return Case(
        id=f"{target}[{name}]{device}:float64",
        target=target,
        name=name,
        source=InputSource.DECLARED,
        reference="declared:cases.py:f#0",
        device=device,
    )


def result(
    target: str, outcome: Outcome = Outcome.PASSED, *, name: str = "a", device: str = "cpu", attempt: int = 1
) -> CaseResult:
    checks = (CheckResult(check="backward", outcome=outcome),)
    return CaseResult(case=case(target, name, device), outcome=outcome, checks=checks, run_attempt=attempt)


def shard(name: str, *results: CaseResult, attempt: int = 1, started: str = "", interrupted: bool = False) -> Report:
    run = Run(attempt=attempt, started=started, interrupted=interrupted, seconds=float(len(results)))
    stamped = tuple(replace(each, run_attempt=attempt) for each in results)
    return Report(run=run, shard=Shard(name=name, expected=SHARDS), shards_seen=(name,), results=stamped)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    names = st.sampled_from(["p:A", "p:B", "p:C"])
    results = draw(
        st.lists(
            st.builds(
                result,
                names,
                st.sampled_from(list(Outcome)),
                name=st.sampled_from(["a", "b"]),
                device=st.sampled_from(["cpu", "cuda"]),
            ),
            max_size=5,
            unique_by=lambda each: each.case.id,
        )
    )
    made = shard(
        draw(st.sampled_from(SHARDS)),
        *results,
        attempt=draw(st.integers(1, 3)),
        started=draw(st.sampled_from(["2026-01-01", "2026-01-02", "2026-01-03"])),
        interrupted=draw(st.booleans()),
    )
    targets = draw(
        st.lists(
            st.builds(
                Target,
                id=names,
                kind=st.just(TargetKind.FUNCTION),
                seen=st.sampled_from(["static", "runtime", "both"]),
                schema=st.sampled_from(["", "x"]),
            ),
            max_size=3,
            unique_by=lambda each: each.id,
        )
    )
    return replace(
        made,
        run=replace(made.run, branch=draw(st.sampled_from(["m", "n"]))),
        targets=tuple(targets),
        unchecked=draw(
            st.lists(
                st.builds(Unchecked, target=names, reason=st.sampled_from(["no_inputs", "interrupted"])),
                max_size=2,
                unique_by=lambda each: each.target,
            ).map(tuple)
        ),
        problems=draw(
            st.lists(
                st.builds(ImportProblem, module=names, path=st.just("p.py"), reason=names),
                max_size=2,
                unique_by=lambda each: each.module,
            ).map(tuple)
        ),
        environments=draw(
            st.lists(
                st.builds(Environment, name=st.sampled_from(["cpu", "cuda:0"]), device=st.just("cpu"), torch=names),
                max_size=2,
                unique_by=lambda each: each.name,
            ).map(tuple)
        ),
        notes=draw(st.lists(st.builds(Note, code=names), max_size=2, unique_by=lambda each: each.code).map(tuple)),
    )


@settings(max_examples=60, deadline=None)
@given(reports(), reports(), reports())
def test_merging_is_associative(a: Report, b: Report, c: Report) -> None:
    assert merge([merge([a, b]), c]) == merge([a, merge([b, c])]) == merge([a, b, c])


@settings(max_examples=60, deadline=None)
@given(st.lists(reports(), min_size=1, max_size=4), st.randoms())
def test_merging_is_commutative(some: list[Report], random: object) -> None:
    shuffled = list(some)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merge(shuffled) == merge(some)


@settings(max_examples=60, deadline=None)
@given(st.lists(reports(), min_size=1, max_size=3))
def test_merging_is_idempotent(some: list[Report]) -> None:
    once = merge(some)
    assert merge([once]) == once
    assert merge([once, once]) == once
    assert merge([once, *some]) == once


@settings(max_examples=50, deadline=None)
@given(st.lists(reports(), min_size=1, max_size=3))
def test_a_merged_report_can_be_written_and_read(some: list[Report]) -> None:
    once = merge(some)
    assert codec.loads(codec.dumps(once), Report) == once


def test_results_of_all_shards_are_joined_once() -> None:
    joined = merge([shard("1/3", result("p:A")), shard("2/3", result("p:B")), shard("1/3", result("p:A"))])
    assert [each.case.target for each in joined.results] == ["p:A", "p:B"]


def test_shards_that_never_reported_are_missing() -> None:
    joined = merge([shard("3/3"), shard("1/3")])
    assert joined.shards_seen == ("1/3", "3/3")
    assert missing(joined) == ("2/3",)


def test_a_shard_that_was_cut_short_is_missing_until_it_ran_again() -> None:
    cut_short = shard("2/3", interrupted=True)
    joined = merge([shard("1/3"), cut_short, shard("3/3")])
    assert missing(joined) == ("2/3",)
    assert joined.run.interrupted
    again = merge([joined, shard("2/3", attempt=2)])
    assert missing(again) == ()
    assert not again.run.interrupted


def test_the_newest_attempt_stands_whatever_it_says() -> None:
    old = shard("1/3", result("p:A", Outcome.FAILED), attempt=1)
    new = shard("1/3", result("p:A", Outcome.PASSED), attempt=2)
    (only,) = merge([new, old]).results
    assert only.outcome is Outcome.PASSED
    assert only.run_attempt == 2


def test_within_one_attempt_nothing_bad_is_hidden() -> None:
    one, other = shard("1/3", result("p:A", Outcome.PASSED)), shard("2/3", result("p:A", Outcome.FAILED))
    (only,) = merge([one, other]).results
    assert only.outcome is Outcome.FAILED


def test_a_target_that_any_shard_checked_is_not_unchecked() -> None:
    without = replace(shard("1/3"), unchecked=(Unchecked(target="p:A", reason="interrupted"),))
    assert merge([without, shard("2/3", result("p:A"))]).unchecked == ()


def test_results_of_one_target_on_two_devices_are_compared() -> None:
    cpu, cuda = shard("1/3", result("p:A")), shard("2/3", result("p:A", Outcome.FAILED, device="cuda"))
    (finding,) = merge([cpu, cuda]).findings
    assert finding.rule == "GB109"
    assert finding.details["right_on"] == "cpu"
    assert finding.details["wrong_on"] == "cuda"


def test_reports_of_different_commits_are_refused() -> None:
    one = replace(shard("1/3"), run=Run(head_sha="a" * 40))
    other = replace(shard("2/3"), run=Run(head_sha="b" * 40))
    with pytest.raises(UsageError, match="different commits"):
        merge([one, other])


def test_nothing_to_merge_is_refused() -> None:
    with pytest.raises(UsageError, match="no report"):
        merge([])


def test_a_hundred_shards_of_a_thousand_cases() -> None:
    names = tuple(f"{number}/100" for number in range(1, 101))
    shards = [
        Report(
            shard=Shard(name=name, expected=names),
            shards_seen=(name,),
            results=tuple(result(f"p.m{number}:F", name=f"c{name}-{number}") for number in range(1000)),
            targets=tuple(Target(id=f"p.m{number}:F", kind=TargetKind.FUNCTION) for number in range(1000)),
        )
        for name in names
    ]
    joined = merge(shards)
    assert len(joined.results) == 100_000
    assert missing(joined) == ()
