"""Recordings on disk: chosen in a stable order, unchanged when nothing changed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from safetensors import safe_open

from gradbot.errors import UsageError
from gradbot.record.spool import Scope, Spool
from gradbot.record.store import Limits, choose, file_name, read_spool, read_target, update
from gradbot.record.values import decode_value
from gradbot.record.watch import watching


class Scale(torch.autograd.Function):
    pass


def spooled(folder: Path, *calls: tuple[Any, ...], target: type = Scale) -> Spool:
    spool = Spool(folder=folder, scope=Scope(packages=("__nowhere__", Scale.__module__)), test_id=lambda: "test_it")
    for call in calls:
        spool.function_called(target, call, {})
    return spool


def stored(spool: Path, folder: Path, *, prune: bool = False, limits: Limits | None = None) -> Any:
    folders = sorted(path for path in spool.glob("*") if path.is_dir())
    return update(folder, read_spool(spool), limits=limits or Limits(), prune=prune, tensor_folders=folders)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


def test_one_sample_is_kept_of_calls_that_differ_in_values_only(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", (leaf(3), 2.0), (leaf(3), 2.0), (leaf(3), 3.0))
    summary = stored(tmp_path / "spool", tmp_path / "cases")
    assert (summary.targets, summary.samples) == (1, 2)


def test_recording_again_gives_no_difference_though_the_values_differ(tmp_path: Path) -> None:
    for run in "ab":
        mask = torch.zeros(900).bernoulli_(0.3)
        spooled(tmp_path / run, (leaf(3), 2.0), (leaf(40, 5), 1.0), (mask, 0.5))
        summary = stored(tmp_path / run, tmp_path / "cases")
        if run == "a":
            before = contents(tmp_path / "cases")
    assert (summary.added, summary.removed) == (0, 0)
    assert contents(tmp_path / "cases") == before


@pytest.mark.parametrize(
    "large",
    [
        torch.zeros(900).bernoulli_(0.3, generator=torch.Generator().manual_seed(0)),
        torch.randn(900, dtype=torch.complex128),
        torch.randint(0, 9, (900,)),
        torch.zeros(900, dtype=torch.bfloat16),
    ],
    ids=lambda tensor: str(tensor.dtype)[6:],
)
def test_exact_large_tensors_lie_in_one_safetensors_file(tmp_path: Path, large: torch.Tensor) -> None:
    spooled(tmp_path / "spool", (large, 0.5), (leaf(3), 2.0))
    stored(tmp_path / "spool", tmp_path / "cases")
    assert sorted(contents(tmp_path / "cases")) == sorted(
        [file_name(f"{Scale.__module__}:Scale"), "tensors.safetensors"]
    )


class Other(torch.autograd.Function):
    pass


def masks(count: int, size: int) -> list[tuple[Any, ...]]:
    """Calls with a mask of `size` bytes each, which must be kept exactly."""
    return [(leaf(3), torch.rand(size) > 0.5, place) for place in range(count)]


def test_exact_tensors_are_bounded_in_all_and_every_target_keeps_its_smallest(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", *masks(4, 3000))
    spooled(tmp_path / "spool", *masks(4, 2000), target=Other)
    summary = stored(tmp_path / "spool", tmp_path / "cases", limits=Limits(tensor_bytes=8000))
    with safe_open(tmp_path / "cases" / "tensors.safetensors", "pt") as file:
        sizes = sorted(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118
    assert sizes == [2000, 2000, 3000]
    assert summary.targets == 2


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", *masks(1, 3000))
    summary = stored(tmp_path / "spool", tmp_path / "cases", limits=Limits(tensor_bytes=1000))
    assert summary.targets == 0
    ((reason,),) = summary.not_portable.values()
    assert "do not fit" in reason
    assert not (tmp_path / "cases" / "tensors.safetensors").exists()


def test_what_was_kept_stays_where_more_comes_than_fits(tmp_path: Path) -> None:
    limits = Limits(tensor_bytes=5000)
    spooled(tmp_path / "a", *masks(1, 3000))
    stored(tmp_path / "a", tmp_path / "cases", limits=limits)
    before = contents(tmp_path / "cases")
    spooled(tmp_path / "b", *masks(1, 3000))
    spooled(tmp_path / "b", *masks(1, 2500), target=Other)
    summary = stored(tmp_path / "b", tmp_path / "cases", limits=limits)
    assert (summary.added, summary.removed) == (0, 0)
    assert contents(tmp_path / "cases") == before


def test_unseen_samples_stay_unless_pruned(tmp_path: Path) -> None:
    spooled(tmp_path / "a", (leaf(3), 2.0), (leaf(3), 3.0))
    stored(tmp_path / "a", tmp_path / "cases")
    spooled(tmp_path / "b", (leaf(3), 2.0))
    assert stored(tmp_path / "b", tmp_path / "cases").samples == 2
    summary = stored(tmp_path / "b", tmp_path / "cases", prune=True)
    assert (summary.samples, summary.removed) == (1, 1)


def test_calls_that_cannot_be_written_are_told_with_the_reason(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", (leaf(3), lambda x: x))
    summary = stored(tmp_path / "spool", tmp_path / "cases")
    assert summary.samples == 0
    assert "lambda" in summary.not_portable[f"{Scale.__module__}:Scale"][0]


def test_a_line_cut_short_by_a_crash_loses_only_itself(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", (leaf(3), 2.0))
    (calls,) = (tmp_path / "spool").glob("*/calls.jsonl")
    calls.write_text(calls.read_text() + '{"target": "x", "sig')
    assert stored(tmp_path / "spool", tmp_path / "cases").samples == 1


def test_modules_outside_the_scope_are_not_recorded(tmp_path: Path) -> None:
    spool = Spool(folder=tmp_path, scope=Scope(packages=("kernels",)), test_id=str)
    spool.function_called(Scale, (leaf(3),), {})
    assert read_spool(tmp_path) == []


def test_a_listener_never_raises_into_the_suite(tmp_path: Path) -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("hostile")

    spooled(tmp_path / "spool", (leaf(3), Hostile()))
    (entry,) = read_spool(tmp_path / "spool")
    assert "hostile" in entry["problem"]


ENTRIES = st.lists(
    st.builds(
        lambda signature, kind, size, grad: {
            "signature": f"s{signature}",
            "kind": f"k{kind}",
            "size": size,
            "requires_grad": grad,
        },
        st.integers(0, 40),
        st.integers(0, 5),
        st.integers(1, 99),
        st.booleans(),
    ),
    max_size=60,
    unique_by=lambda entry: entry["signature"],
)


@given(ENTRIES, st.randoms())
def test_the_choice_does_not_depend_on_the_order_of_calls(entries: list[Any], random: Any) -> None:
    shuffled = list(entries)
    random.shuffle(shuffled)
    assert choose(entries, [], Limits()) == choose(shuffled, [], Limits())


@given(ENTRIES)
def test_the_choice_is_bounded_and_stable(entries: list[Any]) -> None:
    chosen = choose(entries, [], Limits(per_target=5, per_kind=2))
    assert len(chosen) <= 5
    assert choose(entries, chosen, Limits(per_target=5, per_kind=2)) == chosen


@given(ENTRIES)
def test_calls_that_required_grad_come_first(entries: list[Any]) -> None:
    chosen = choose(entries, [], Limits(per_target=1, per_kind=1))
    if any(entry["requires_grad"] for entry in entries):
        best = {entry["kind"] for entry in entries if entry["requires_grad"]}
        assert chosen[0]["requires_grad"]
        assert chosen[0]["kind"] in best


@pytest.mark.parametrize("text", ["", "[]", "{", '{"target": "x"}', '{"target": "x", "samples": [], "format": 99}'])
def test_a_file_that_is_no_recording_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"x\.json"):
        read_target(path)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        if bool((x < 0).any()):
            raise ValueError("negative")
        return x * x


def test_of_one_signature_the_first_call_that_is_not_degenerate_is_kept(tmp_path: Path) -> None:
    zeros, generic = torch.zeros(4, requires_grad=True), torch.tensor([1.0, -2.0, 0.5, 3.0], requires_grad=True)
    spooled(tmp_path / "spool", (zeros, 2.0), (zeros, 2.0), (generic, 2.0), (leaf(4), 2.0))
    stored(tmp_path / "spool", tmp_path / "cases")
    (path,) = (tmp_path / "cases").glob("*.json")
    (sample,) = read_target(path)[1]
    assert sample["args"][0]["tensor"]["values"] == [1.0, -2.0, 0.5, 3.0]
    assert "degenerate" not in sample


def test_degenerate_inputs_are_kept_only_of_kinds_without_others(tmp_path: Path) -> None:
    ones = torch.ones(5, requires_grad=True)
    spooled(tmp_path / "spool", (ones, 2.0), (leaf(6), 2.0), (ones, 3.0))
    stored(tmp_path / "spool", tmp_path / "cases")
    (path,) = (tmp_path / "cases").glob("*.json")
    kept = [(sample["args"][0]["tensor"]["shape"], sample["args"][1]) for sample in read_target(path)[1]]
    assert kept == [([5], 3.0), ([6], 2.0)]


def test_a_call_that_raised_is_no_sample_but_the_next_one_of_its_kind_is(tmp_path: Path) -> None:
    spool = Spool(folder=tmp_path / "spool", scope=Scope(packages=(Scale.__module__,)), test_id=lambda: "test_it")
    with watching(spool):
        with pytest.raises(ValueError, match="negative"):
            Square.apply(torch.tensor([-1.0, 2.0], requires_grad=True))
        assert read_spool(tmp_path / "spool") == []
        Square.apply(torch.tensor([1.0, 2.0], requires_grad=True))
    (entry,) = read_spool(tmp_path / "spool")
    assert entry["args"][0]["tensor"]["values"] == [1.0, 2.0]


def test_a_file_of_the_first_format_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(FIRST_FORMAT)
    target, (sample,) = read_target(path)
    x, indices, mode, scale = (decode_value(raw, {}.__getitem__) for raw in sample["args"])
    assert target == "kernels:Gather"
    assert torch.equal(x, torch.tensor([[1.5, -2.0]]))
    assert x.requires_grad
    assert torch.equal(indices, torch.tensor([0, 1, 1]))
    assert (mode, scale) == (("sum", None), float("inf"))
    drawn = decode_value(sample["kwargs"]["weight"], {}.__getitem__)
    assert drawn.shape == (10, 10)
    assert 1.0 <= float(drawn.min()) <= float(drawn.max()) <= 2.0


FIRST_FORMAT = """{
 "format": 1,
 "target": "kernels:Gather",
 "samples": [
  {
   "signature": "s", "kind": "k", "size": 105, "requires_grad": true, "test": "tests/test_a.py::test_b",
   "args": [
    {"tensor": {"dtype": "float32", "shape": [1, 2], "requires_grad": true, "values": [1.5, -2.0]}},
    {"tensor": {"dtype": "int64", "shape": [3], "values": [0, 1, 1]}},
    {"tuple": ["sum", null]},
    {"float": "inf"}
   ],
   "kwargs": {"weight": {"tensor": {
    "dtype": "float64", "shape": [10, 10], "random": {"quantiles": [1.0, 1.25, 1.5, 2.0], "seed": 7}}}}
  }
 ]
}
"""


def test_files_are_readable_json(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", (torch.tensor([1.5, 2.0], requires_grad=True), [1, "a [ b"], None))
    stored(tmp_path / "spool", tmp_path / "cases")
    (path,) = (tmp_path / "cases").glob("*.json")
    text = path.read_text()
    assert '"values": [1.5, 2.0]' in text
    assert json.loads(text)["samples"][0]["args"][1] == [1, "a [ b"]


def joined(folder: Path) -> tuple[Any, bool]:
    """What joining a spool in a process of its own says, and whether that imported torch."""
    line = [sys.executable, "-X", "importtime", "-m", "gradbot.record.collect", str(folder / "spool")]
    done = subprocess.run([*line, str(folder / "cases")], capture_output=True, text=True, check=True)
    return json.loads(done.stdout), bool(re.search(r"\| +torch$", done.stderr, re.MULTILINE))


@pytest.mark.parametrize(
    ("exact", "with_torch"), [(None, False), (torch.bool, False), (torch.int64, False), (torch.bfloat16, True)]
)
def test_recordings_are_joined_without_torch_unless_an_exact_tensor_needs_it(
    tmp_path: Path, exact: torch.dtype | None, with_torch: bool
) -> None:
    mask = () if exact is None else (torch.arange(900).remainder(7).to(exact),)
    spooled(tmp_path / "spool", (leaf(3), *mask, 2.0))
    summary, imported = joined(tmp_path)
    assert (summary["added"], imported) == (1, with_torch)
    if exact is not None:
        with safe_open(tmp_path / "cases" / "tensors.safetensors", "pt") as file:
            (name,) = file.keys()
            assert torch.equal(file.get_tensor(name), mask[0])
    assert joined(tmp_path)[0]["added"] == 0
