"""Plans: what is chosen, seeded, skipped, listed as unchecked, and how it is cut into shards."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradbot.errors import UsageError
from gradbot.model import Case, CheckSettings, ImportProblem, InputSource, Outcome, Target, TargetKind
from gradbot.plan import (
    Selection,
    Unit,
    cut,
    estimates,
    hold_cases,
    in_shard,
    make_plan,
    parse_shard,
    resolve_targets,
    units,
    unplanned,
)


def case(target: str, name: str = "a", device: str = "cpu", **settings: str) -> Case:
    return Case(
        id=f"{target}[{name}]{device}:float64",
        target=target,
        name=name,
        source=InputSource.DECLARED,
        reference="declared:cases.py:f#0",
        device=device,
        settings=CheckSettings(**settings),
    )


def target(name: str) -> Target:
    return Target(id=name, kind=TargetKind.FUNCTION, module=name.partition(":")[0])


def test_a_target_without_cases_is_unchecked_and_says_why() -> None:
    problems = [ImportProblem(module="q", path="q.py", reason="ImportError: no GPU")]
    plan = make_plan([case("p:A")], [target("p:A"), target("p:B"), target("q:C")], problems)
    assert [(each.target, each.reason) for each in plan.unchecked] == [("p:B", "no_inputs"), ("q:C", "import_failed")]
    assert plan.unchecked[1].details == {"message": "ImportError: no GPU"}


def test_a_device_that_is_not_there_is_skipped_with_the_reason() -> None:
    cases = [case("p:A"), case("p:A", device="cuda"), case("p:A", device="cuda:1")]
    plan = make_plan(cases, [], present={"cpu": "", "cuda": "torch sees no CUDA device"})
    assert [each.device for each in plan.cases] == ["cpu"]
    assert {each.outcome for each in plan.skipped} == {Outcome.SKIPPED}
    assert plan.skipped[0].reason == "device_missing"
    assert plan.skipped[0].details == {"device": "cuda", "message": "torch sees no CUDA device"}


def test_a_configured_skip_gives_its_reason() -> None:
    plan = make_plan([case("p:A", skip="needs two nodes")], [])
    assert plan.cases == ()
    assert plan.skipped[0].details == {"reason": "needs two nodes"}


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), ["p:A[a]", "p:A[b]", "p:B[a]"]),
        (Selection(targets=("p:A",)), ["p:A[a]", "p:A[b]"]),
        (Selection(cases=("b",)), ["p:A[b]"]),
        (Selection(cases=("p:B[a]cpu:float64",)), ["p:B[a]"]),
        (Selection(globs=("p:*[a]",)), ["p:A[a]", "p:B[a]"]),
        (Selection(globs=("B",)), ["p:B[a]"]),
        (Selection(globs=("nothing",)), []),
    ],
)
def test_what_is_asked_for_is_chosen(selection: Selection, chosen: list[str]) -> None:
    cases = [case("p:A"), case("p:A", "b"), case("p:B")]
    plan = make_plan(cases, [], selection=selection)
    assert [each.id.removesuffix("cpu:float64") for each in plan.cases] == chosen


def test_every_case_carries_the_seed_of_the_run() -> None:
    plan = make_plan([case("p:A"), case("p:B", skip="why")], [], seed=7)
    assert [plan.cases[0].seed, plan.skipped[0].case.seed] == [7, 7]


@pytest.mark.parametrize(("named", "found"), [("p:A", "p:A"), ("q:Alias", "p:A")])
def test_a_target_is_named_by_id_or_alias(named: str, found: str) -> None:
    assert resolve_targets([named], [replace(target("p:A"), aliases=("q:Alias",))]) == (found,)


def test_a_target_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no target p:Softcap; did you mean p:SoftCap\?"):
        resolve_targets(["p:Softcap"], [target("p:SoftCap"), target("p:Other")])


def test_a_case_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no case big; did you mean bigger\?"):
        hold_cases(Selection(cases=("big",)), [case("p:A", "bigger")])


def test_unknown_durations_are_estimated_from_the_target_then_from_all() -> None:
    cases = [case("p:A", "a"), case("p:A", "b"), case("p:B")]
    durations = {cases[0].id: 4.0, "other[x]cpu:float64": 1.0, "more[x]cpu:float64": 2.0}
    assert estimates(cases, durations) == {cases[0].id: 4.0, cases[1].id: 4.0, cases[2].id: 2.0}


def realistic(count: int, seed: int) -> list[Unit]:
    """Durations as suites have them: log-normal, a median of half a second, a long tail up to half a minute."""
    rng = random.Random(seed)
    return [
        Unit(key=f"p:F{number}[a]cpu:float64", device="cpu", seconds=min(30.0, rng.lognormvariate(-0.7, 1.2)))
        for number in range(count)
    ]


@pytest.mark.parametrize("shards", [2, 3, 8, 16])
@pytest.mark.parametrize("seed", range(5))
def test_shards_come_out_even(shards: int, seed: int) -> None:
    plans = cut(realistic(800, seed), shards)
    seconds = [each.seconds for each in plans.shards]
    assert len(seconds) == shards
    assert max(seconds) <= 1.15 * sum(seconds) / shards


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["cpu", "cuda", "mps"]), st.floats(0, 100)), min_size=1, max_size=40),
    st.one_of(st.none(), st.integers(1, 10)),
)
def test_every_unit_is_in_one_shard_that_has_its_device(drawn: list[tuple[str, float]], shards: int | None) -> None:
    some = [Unit(key=str(number), device=device, seconds=seconds) for number, (device, seconds) in enumerate(drawn)]
    plans = cut(some, shards)
    assert sorted(key for each in plans.shards for key in each.keys) == sorted(unit.key for unit in some)
    devices = {unit.key: unit.device for unit in some}
    assert all(devices[key] in each.devices for each in plans.shards for key in each.keys)
    assert [each.name for each in plans.shards] == [f"{n}/{len(plans.shards)}" for n in range(1, len(plans.shards) + 1)]
    assert shards is None or len(plans.shards) == shards


def test_as_many_shards_as_make_five_minutes() -> None:
    some = [Unit(key=str(number), device="cpu", seconds=60.0) for number in range(20)]
    some += [Unit(key="gpu", device="cuda", seconds=5.0)]
    plans = cut(some, None)
    assert [each.devices for each in plans.shards] == [("cpu",)] * 4 + [("cuda",)]


def test_shards_part_the_cases() -> None:
    cases = [case(f"p:F{number}", name) for number in range(30) for name in "ab"]
    plans = cut(units(cases, {}, []), 4)
    parts = [in_shard(cases, plans, number) for number in range(1, 5)]
    assert sorted(each.id for part in parts for each in part) == sorted(each.id for each in cases)


def test_cases_that_only_another_machine_finds_follow_their_target() -> None:
    plans = cut(units([case("p:A")], {}, [("gpu:B", "cuda")]), 2)
    expanded = [case("gpu:B", name, "cuda") for name in "abc"]
    place = next(number for number, each in enumerate(plans.shards, 1) if "gpu:B" in each.keys)
    assert in_shard(expanded, plans, place) == tuple(expanded)
    assert in_shard(expanded, plans, 3 - place) == ()


def test_a_case_that_no_plan_knows_is_run_by_one_shard() -> None:
    plans = cut(units([case("p:A"), case("p:B"), case("p:C")], {}, []), 3)
    new = [case("p:New", name) for name in "abc"]
    parts = [in_shard(new, plans, number) for number in (1, 2, 3)]
    assert sorted(each.id for part in parts for each in part) == sorted(each.id for each in new)


def test_without_a_plan_every_machine_deals_alike_and_each_case_is_run_once() -> None:
    cases = [case(f"p:F{number}", name, device) for number in range(40) for name in "ab" for device in ("cpu", "cuda")]
    parts = [in_shard(cases, unplanned(4), number) for number in range(1, 5)]
    assert sorted(each.id for part in parts for each in part) == sorted(each.id for each in cases)
    assert in_shard(cases[:7], unplanned(4), 2) == tuple(each for each in parts[1] if each in cases[:7])
    assert min(len(part) for part in parts) > 20


@pytest.mark.parametrize("text", ["", "3", "0/8", "9/8", "a/b", "3/8/1", "-1/2"])
def test_a_bad_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="3/8"):
        parse_shard(text)


def test_a_good_shard_is_read() -> None:
    assert parse_shard("3/8") == (3, 8)


def test_the_plan_of_nothing_is_one_empty_shard() -> None:
    assert [each.name for each in cut([], 4).shards] == ["1/1"]
