"""A run against its base: every class with its evidence, matching across renames, what else changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import example_run
import pytest
from hypothesis import given
from strategies import WHOLE_REPORTS, reports

from gradbot.model import Attempts, CaseResult, CheckResult, Finding, Location, Outcome, Report, Target
from gradbot.report import aggregate, baseline, compare
from gradbot.report.aggregate import Classification, Item
from gradbot.rules import RULES

HEAD, BASE = example_run.head(), example_run.base()
ROPE = next(result for result in HEAD.results if result.case.name == "rope-32x64")


def finding(kind: str = "jacobian_mismatch_backward", check: str = "backward") -> Finding:
    return Finding(rule=RULES[kind].id, kind=kind, check=check, severity=RULES[kind].severity)


def result(
    outcome: Outcome, *, target: str = "kernels.rope:Rope", name: str = "rope", device: str = "cpu"
) -> CaseResult:
    case = replace(ROPE.case, id=f"{target}[{name}]{device}:float64", target=target, name=name, device=device)
    findings = (finding(),) if outcome is Outcome.FAILED else ()
    check = CheckResult(check="backward", outcome=outcome, findings=findings, reason="kink" if not findings else "")
    return replace(ROPE, case=case, outcome=outcome, checks=(check,), seconds=1.0)


def target(name: str, path: str = "kernels/rope.py", line: int = 10) -> Target:
    place = Location(path=path, line=line)
    kept = next(each for each in HEAD.targets if each.id == "kernels.rope:Rope")
    return replace(kept, id=name, location=place, methods={"forward": place, "backward": place})


def run(*results: CaseResult, targets: tuple[Target, ...] = ()) -> Report:
    named = {each.case.target for each in results} - {each.id for each in targets}
    return Report(results=results, targets=(*targets, *map(target, sorted(named))))


def only(items: tuple[Item, ...]) -> Item:
    assert len(items) == 1, [(item.target, item.check, item.classification) for item in items]
    return items[0]


FAILED, PASSED = Outcome.FAILED, Outcome.PASSED


@pytest.mark.parametrize(
    ("base", "classification", "because", "new"),
    [
        (run(result(PASSED)), Classification.NEW, "passes on the base", True),
        (run(result(FAILED)), Classification.KNOWN, "also fails on the base", False),
        (run(result(Outcome.INCONCLUSIVE)), Classification.UNCLASSIFIED, "on the base this check ended as", True),
        (run(result(Outcome.UNSUPPORTED)), Classification.NEW, "not supported on the base", True),
        (run(result(PASSED, name="other", device="mps")), Classification.UNCLASSIFIED, "did not run this case", True),
        (run(result(FAILED, device="cuda")), Classification.KNOWN, "also fails on the base, on cuda", False),
        (run(), Classification.NEW, "the target is new", True),
        (run(targets=(target("kernels.rope:Rope"),)), Classification.UNCLASSIFIED, "not checked on the base", True),
    ],
)
def test_a_failure_is_classified_by_what_the_base_shows(
    base: Report, classification: Classification, because: str, new: bool
) -> None:
    item = only(compare.compare(run(result(FAILED)), base).told)
    assert (item.classification, item.new) == (classification, new)
    assert because in item.because


def test_without_a_base_a_failure_is_unclassified_and_counts_as_new() -> None:
    item = only(compare.compare(run(result(FAILED))).told)
    assert item.classification is Classification.UNCLASSIFIED
    assert item.new


def test_a_failure_on_one_more_device_is_new_there_and_known_here() -> None:
    head = run(result(FAILED), result(FAILED, device="cuda"))
    base = run(result(FAILED), result(PASSED, device="cuda"))
    told = compare.compare(head, base).told
    assert [(item.classification.value, item.devices) for item in told] == [("new", ("cuda",)), ("known", ("cpu",))]


def test_another_kind_of_failure_is_not_excused_by_an_old_one() -> None:
    other = replace(
        result(FAILED), checks=(replace(result(FAILED).checks[0], findings=(finding("grad_output_mutated"),)),)
    )
    item = only(compare.compare(run(result(FAILED)), run(other)).told)
    assert item.classification is Classification.UNCLASSIFIED
    assert "failed otherwise" in item.because


def test_flaky_needs_runs_that_passed_and_says_how_many() -> None:
    shaky = replace(result(FAILED), attempts=Attempts(runs=8, failures=3))
    steady = replace(result(FAILED), attempts=Attempts(runs=8, failures=8))
    told = only(compare.compare(run(shaky), run(result(PASSED))).told)
    assert told.classification is Classification.FLAKY
    assert "failed in 3 of 8 runs" in told.because
    assert told.new
    assert only(compare.compare(run(steady), run(result(PASSED))).told).classification is Classification.NEW


def test_flaky_on_the_base_too_is_not_new() -> None:
    shaky = replace(result(FAILED), attempts=Attempts(runs=8, failures=3))
    assert not only(compare.compare(run(shaky), run(shaky)).told).new


def test_expected_and_inconclusive_have_classes_of_their_own() -> None:
    told = compare.compare(HEAD, BASE).told
    by_outcome = {item.outcome: item.classification for item in told}
    assert by_outcome[Outcome.EXPECTED_FAILURE] is Classification.EXPECTED
    assert by_outcome[Outcome.INCONCLUSIVE] is Classification.INCONCLUSIVE


def test_fixed_needs_the_very_check_to_pass_now() -> None:
    assert only(compare.compare(run(result(PASSED)), run(result(FAILED))).fixed).classification is Classification.FIXED
    for outcome in (Outcome.INCONCLUSIVE, Outcome.SKIPPED, Outcome.UNSUPPORTED, Outcome.FAILED):
        assert not compare.compare(run(result(outcome)), run(result(FAILED))).fixed
    assert not compare.compare(run(), run(result(FAILED))).fixed


MOVES: dict[str, Callable[[], tuple[Target, Target]]] = {
    "lines shifted": lambda: (target("kernels.rope:Rope", line=10), target("kernels.rope:Rope", line=90)),
    "module moved": lambda: (target("kernels.rope:Rope"), target("kernels.pos.rope:Rope", path="kernels/pos/rope.py")),
    "class renamed": lambda: (target("kernels.rope:Rope"), target("kernels.rope:RotaryEmbedding")),
}


@pytest.mark.parametrize("move", sorted(MOVES))
def test_a_target_is_recognised_again(move: str) -> None:
    before, after = MOVES[move]()
    base = run(result(FAILED, target=before.id), targets=(before,))
    head = run(result(FAILED, target=after.id), targets=(after,))
    changes = compare.compare(head, base)
    assert only(changes.told).classification is Classification.KNOWN
    assert changes.renamed == (((before.id, after.id),) if before.id != after.id else ())
    assert not changes.added
    assert not changes.removed


def test_a_renamed_case_is_recognised_by_its_inputs() -> None:
    changes = compare.compare(run(result(FAILED, name="a")), run(result(FAILED, name="b")))
    assert only(changes.told).classification is Classification.KNOWN


def test_two_candidates_for_a_rename_match_nothing() -> None:
    before = run(result(FAILED, target="k:A"), targets=(target("k:A"),))
    after = run(result(FAILED, target="k:B"), result(FAILED, target="k:C"), targets=(target("k:B"), target("k:C")))
    changes = compare.compare(after, before)
    assert changes.renamed == ()
    assert {item.classification for item in changes.told} == {Classification.NEW}


def test_what_changed_in_coverage() -> None:
    changes = compare.compare(HEAD, BASE)
    assert changes.removed == ("kernels.gather:OldGather",)
    assert "mylib::ragged_sum" in changes.added
    head = run(result(Outcome.SKIPPED))
    assert compare.compare(head, run(result(PASSED))).no_longer_checked == ("kernels.rope:Rope",)


def test_what_changed_in_capability() -> None:
    changed = {(c.target, c.check, c.device): (c.before, c.after) for c in compare.compare(HEAD, BASE).capabilities}
    assert changed[("kernels.rope:Rope", "double_backward", "cpu")] == ("wrong", "ok")
    assert changed[("kernels.softcap:SoftCap", "backward", "cuda:0")] == ("ok", "wrong")


def test_what_became_slower() -> None:
    head = run(replace(result(PASSED), seconds=5.0))
    assert [each.case for each in compare.compare(head, run(result(PASSED))).slower] == [head.results[0].case.id]
    assert not compare.compare(run(replace(result(PASSED), seconds=1.9)), run(result(PASSED))).slower


def test_a_run_compared_with_itself_has_nothing_new() -> None:
    changes = compare.compare(HEAD, HEAD)
    assert not [item for item in changes.told if item.failing and item.new]
    assert (changes.fixed, changes.added, changes.removed, changes.renamed, changes.capabilities) == ((),) * 5


@WHOLE_REPORTS
@given(reports())
def test_any_report_compared_with_itself_has_nothing_new(report: Report) -> None:
    ids = [each.case.id for each in report.results]
    flat = replace(report, results=tuple(r for i, r in enumerate(report.results) if ids.index(r.case.id) == i))
    changes = compare.compare(flat, flat, baseline.from_report(flat))
    assert not [item for item in changes.told if item.failing and item.new and item.lead.result]


@WHOLE_REPORTS
@given(reports(), reports())
def test_comparing_loses_nothing(head: Report, base: Report) -> None:
    told = compare.compare(head, base, baseline.from_report(base)).told
    count = sum(len(item.occurrences) for item in told)
    assert count == sum(len(item.occurrences) for item in aggregate.items(head))


# The baseline


def test_only_what_is_not_accepted_is_new() -> None:
    accepted = baseline.from_report(run(result(FAILED)))
    assert only(compare.compare(run(result(FAILED)), None, accepted).told).classification is Classification.KNOWN
    other = compare.compare(run(result(FAILED, device="cuda")), None, accepted)
    assert only(other.told).classification is Classification.NEW


def test_an_accepted_failure_stays_accepted_after_a_rename() -> None:
    before, after = MOVES["class renamed"]()
    accepted = baseline.from_report(run(result(FAILED, target=before.id), targets=(before,)))
    head = run(result(FAILED, target=after.id), targets=(after,))
    changes = compare.compare(head, None, accepted)
    assert only(changes.told).classification is Classification.KNOWN
    assert not changes.stale


def test_an_entry_is_stale_only_where_the_run_shows_it() -> None:
    accepted = baseline.from_report(run(result(FAILED)))
    assert baseline.stale(accepted, run(result(PASSED))) == accepted.entries
    assert baseline.stale(accepted, run(result(FAILED))) == ()
    assert baseline.stale(accepted, run(result(PASSED, device="cuda"))) == ()
    assert baseline.stale(accepted, run(result(Outcome.INCONCLUSIVE))) == ()
    assert baseline.stale(accepted, run(result(PASSED, target="k:Other"))) == accepted.entries


def test_a_crash_before_a_check_says_nothing_of_what_is_accepted_there() -> None:
    accepted = baseline.from_report(run(result(FAILED)))
    crashed = run(replace(result(Outcome.CRASHED), checks=()))
    assert baseline.stale(accepted, crashed) == ()
    assert set(accepted.entries) <= set(baseline.updated(accepted, crashed).entries)


def test_updating_keeps_what_the_run_does_not_speak_of() -> None:
    both = baseline.from_report(run(result(FAILED), result(FAILED, device="cuda")))
    assert {entry.device for entry in baseline.updated(both, run(result(PASSED))).entries} == {"cuda"}
    assert baseline.updated(both, run(result(FAILED))) == both


def test_the_file_is_stable_in_diffs() -> None:
    results = [result(FAILED, target=f"k:{name}") for name in "CAB"]
    text = baseline.dumps(baseline.from_report(run(*results)))
    assert text == baseline.dumps(baseline.from_report(run(*reversed(results))))
    assert [line.split('"')[3] for line in text.splitlines()[3:-2]] == ["k:A", "k:B", "k:C"]
    moved = run(*results, targets=tuple(target(f"k:{name}", line=999) for name in "ABC"))
    assert baseline.dumps(baseline.from_report(moved)) == text
    assert not any(word in text for word in ("2026", example_run.HEAD_SHA, '"line"'))


@WHOLE_REPORTS
@given(reports())
def test_the_file_comes_back_as_it_was_written(report: Report) -> None:
    made = baseline.from_report(report)
    assert baseline.loads(baseline.dumps(made)) == made
