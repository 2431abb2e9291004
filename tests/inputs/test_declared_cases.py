"""From declarations to cases, and from a case back to its call."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_projects import BODY, TORCH, write

from gradbot import codec
from gradbot.config import Config, TargetTable
from gradbot.discover.static import scan
from gradbot.inputs import Collected, InputsError, LoadedCase, Request, collect, import_case, load_case
from gradbot.model import Case, InputSource, TargetKind

pytestmark = pytest.mark.usefixtures("imports")

HEAD = f"import gradbot\n{TORCH}class Square(Function):{BODY}\n"


class Project:
    """A file of cases in a folder of its own, collected and loaded as a worker does it."""

    def __init__(self, folder: Path, source: str, name: str, config: Config) -> None:
        self.root = write(folder, {f"{name}.py": source})
        self.file = f"{name}.py"
        self.config = config
        self.told: list[tuple[str, str]] = []

    def collect(self, **more: Any) -> Collected:
        found = scan([self.file], root=self.root)
        request = Request(
            root=self.root,
            config=self.config,
            case_files=more.pop("case_files", (self.file,)),
            declared=found.declared,
            on_stage=lambda stage, what="": self.told.append((stage, what)),
            **more,
        )
        collected = collect(request, ("declared",))
        for case in collected.cases:
            assert codec.loads(codec.dumps(case), Case) == case
        return collected

    def load(self, case: Case) -> LoadedCase:
        return load_case(case, self.root)


def project(tmp_path: Path, request: pytest.FixtureRequest, source: str, config: Config | None = None) -> Project:
    name = f"decl_{abs(hash(request.node.nodeid))}"
    return Project(tmp_path, HEAD + source, name, config or Config())


def test_one_sample_in_three_lines(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = "@gradbot.cases(Square)\ndef square():\n    yield gradbot.Sample(torch.randn(4, 5))\n"
    it = project(tmp_path, request, source)
    module = it.file.removesuffix(".py")
    (case,) = it.collect().cases
    assert case.id == f"{module}:Square[square-4x5]cpu:float32"
    assert (case.target, case.name, case.source) == (f"{module}:Square", "square-4x5", InputSource.DECLARED)
    assert case.reference == f"declared:{it.file}:square#0"
    loaded = it.load(case)
    (x,) = loaded.args
    assert x.requires_grad
    assert x.is_leaf
    assert loaded.function_class is not None
    assert loaded.function_class.__name__ == "Square"
    assert torch.equal(loaded.func(x), x * x)


def test_samples_are_the_same_whenever_they_are_made(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = """
import random, numpy as np
@gradbot.cases(Square)
def square():
    for size in (2, 3):
        yield gradbot.Sample(torch.randn(size) + random.random() + np.random.rand())
"""
    it = project(tmp_path, request, source)
    first, second = it.collect().cases
    torch_state, python_state, numpy_state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index,union-attr]
    once, again = it.load(second).args[0], it.load(second).args[0]
    assert torch.equal(once, again)
    assert once.shape == (3,)
    assert it.load(first).args[0].shape == (2,)
    assert not torch.equal(it.load(replace(second, seed=1)).args[0], once)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python_state
    assert (np.random.get_state()[1] == numpy_state).all()  # type: ignore[index]


def test_names_come_from_the_sample_the_ids_or_the_shapes(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = """
@gradbot.cases(Square, ids=["first", "second"])
def square():
    x = torch.ones(2)
    yield gradbot.Sample(x)
    yield gradbot.Sample(x).named("own")
    yield gradbot.Sample(torch.ones(2, 3), [torch.ones(())], {"a": torch.ones(4), "b": torch.ones(9)})
    yield gradbot.Sample(torch.ones(2, 3), [torch.ones(())], {"a": torch.ones(4)})
    yield gradbot.Sample()
@gradbot.cases(Square)
def _():
    yield gradbot.Sample(torch.ones(2))
"""
    names = [case.name for case in project(tmp_path, request, source).collect().cases]
    expected = ["first", "own", "square-2x3-scalar-4", "square-2x3-scalar-4-2", "square", "sample-2"]
    assert names == expected


def test_dtypes_and_devices_multiply(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = """
@gradbot.cases(Square, dtypes=[torch.float64, torch.float32], devices=["cpu", "cuda"])
def square(dtype, device):
    yield gradbot.Sample(torch.ones(2, dtype=dtype, device=device))
@gradbot.cases(Square, dtypes=["float64", "complex128"])
def plain():
    yield gradbot.Sample(torch.ones(2), torch.arange(3), torch.ones(2, dtype=torch.complex64))
"""
    it = project(tmp_path, request, source, Config(devices=("cpu", "cuda")))
    cases = it.collect().cases
    places = [(case.name, case.device, case.dtype) for case in cases if case.name == "square-2"]
    assert sorted(places) == [
        ("square-2", device, dtype) for device in ("cpu", "cuda") for dtype in ("float32", "float64")
    ]
    real, full = (case for case in cases if case.name.startswith("plain") and case.device == "cpu")
    assert [each.dtype for each in it.load(real).args] == [torch.float64, torch.int64, torch.complex128]
    assert [each.dtype for each in it.load(full).args] == [torch.complex128, torch.int64, torch.complex128]


def test_what_is_declared_for_one_dtype_is_skipped_in_others(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = """
@gradbot.cases(Square, dtypes=["float64"], devices=["cpu"])
def square():
    yield gradbot.Sample(torch.ones(2))
    yield gradbot.Sample(torch.ones(3)).options(dtypes=["float32"])
"""
    config = Config(dtypes=("float32",), devices=("cpu", "cuda"), flags=("dtypes", "devices"))
    cases = project(tmp_path, request, source, config).collect().cases
    skips = {(case.name, case.device): case.settings.skip for case in cases}
    assert skips == {
        ("square-2", "cpu"): "declared for float64 only",
        ("square-2", "cuda"): "declared for cpu only",
        ("square-3", "cpu"): "",
        ("square-3", "cuda"): "declared for cpu only",
    }


def test_nearest_settings_win(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = """
@gradbot.cases(Square, atol=2.0, rtol=2.0, mode="fast", expect="scaled", reason="on purpose")
def square():
    yield gradbot.Sample(torch.ones(2))
    yield gradbot.Sample(torch.ones(3)).options(rtol=3.0, expect="reversal")
"""
    table = TargetTable(pattern="*:Square", atol=1.0, rtol=1.0, eps=1.0)
    config = Config(targets=(table,), atol=0.5, nondet_tol=0.5, flags=("mode",))
    first, second = (each.settings for each in project(tmp_path, request, source, config).collect().cases)
    assert (first.atol, first.rtol, first.eps, first.nondet_tol) == (2.0, 2.0, 1.0, 0.5)
    assert first.mode.value == "auto"
    assert (second.atol, second.rtol) == (2.0, 3.0)
    assert (second.expect, second.reason) == ("reversal", "on purpose")


def test_references_come_as_objects_or_by_name(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = """
def plain(x):
    return x * x
def other(x):
    return x + x
@gradbot.cases(Square, reference=plain, invariant="torch.linalg:norm")
def square():
    yield gradbot.Sample(torch.ones(2))
    yield gradbot.Sample(torch.ones(3)).options(reference=other)
    yield gradbot.Sample(torch.ones(4)).options(reference="no_such_module:f")
"""
    it = project(tmp_path, request, source)
    first, second, third = it.collect().cases
    assert it.load(first).references.reference(torch.tensor(3.0)) == 9  # type: ignore[misc]
    assert it.load(first).references.invariant is torch.linalg.norm
    assert it.load(second).references.reference(torch.tensor(3.0)) == 6  # type: ignore[misc]
    assert first.settings.reference == f"{it.file.removesuffix('.py')}:plain"
    with pytest.raises(InputsError, match="no_such_module cannot be imported: ModuleNotFoundError"):
        it.load(third)


def test_a_generator_that_raises_costs_only_the_samples_that_are_missing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source = """
@gradbot.cases(Square)
def breaks():
    yield gradbot.Sample(torch.ones(2))
    raise ValueError("no more")
@gradbot.cases(Square)
def wrong():
    yield torch.ones(3)
@gradbot.cases(Square)
def not_iterable():
    return 3
@gradbot.cases(Square)
def good():
    yield gradbot.Sample(torch.ones(4))
@gradbot.cases(Square)
def unreasoned():
    yield gradbot.Sample(torch.ones(5)).options(expect="scaled")
"""
    it = project(tmp_path, request, source)
    cases = {case.name: case for case in it.collect().cases}
    assert list(cases) == ["breaks-2", "breaks", "wrong", "not_iterable", "good-4", "unreasoned"]
    assert it.load(cases["good-4"]).args[0].shape == (4,)
    for name, said in {
        "breaks": r"breaks raised ValueError: no more \(at decl_\d+\.py:\d+\)",
        "wrong": r"wrong must yield gradbot\.Sample\(\.\.\.\), found Tensor at index 0",
        "not_iterable": "not_iterable raised TypeError",
        "unreasoned": "needs a reason",
    }.items():
        with pytest.raises(InputsError, match=said):
            it.load(cases[name])


def test_a_file_that_cannot_be_imported_fails_its_targets(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    it = project(tmp_path, request, "@gradbot.cases(Square)\ndef square():\n    yield\nraise RuntimeError('broken')\n")
    found = it.collect()
    (case,) = found.cases
    assert case.target == f"{it.file.removesuffix('.py')}:Square"
    assert [problem.module for problem in found.problems] == [it.file]
    with pytest.raises(InputsError, match=r"cannot be imported: RuntimeError: broken"):
        it.load(case)


def test_a_file_that_killed_its_importer_is_not_imported_again(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    it = project(tmp_path, request, "import os\n@gradbot.cases(Square)\ndef square():\n    yield\nos._exit(3)\n")
    (case,) = it.collect(case_files=()).cases
    assert case.reference == f"declared:{it.file}:#0"


def test_a_generator_that_killed_its_process_is_not_run_again(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = """
import os
@gradbot.cases(Square)
def deadly():
    os._exit(3)
@gradbot.cases(Square)
def good():
    yield gradbot.Sample(torch.ones(4))
"""
    it = project(tmp_path, request, source)
    reference = f"declared:{it.file}:deadly"
    deadly, good = it.collect(skip={reference}).cases
    assert (deadly.name, deadly.reference) == ("deadly", f"{reference}#0")
    assert good.name == "good-4"
    assert it.told == [("import", it.file), ("inputs", f"declared:{it.file}:good")]


def test_targets_that_are_not_there_are_problems_and_fail(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = """
@gradbot.cases("no_such_module:F")
def one():
    yield gradbot.Sample(1)
@gradbot.cases("no_such_namespace::op")
def two():
    yield gradbot.Sample(1)
@gradbot.cases(__name__ + ":Missing")
def three():
    yield gradbot.Sample(1)
@gradbot.cases(3)
def four():
    yield gradbot.Sample(1)
"""
    it = project(tmp_path, request, source)
    found = it.collect()
    assert [problem.module.partition(":")[2] for problem in found.problems] == ["one", "two", "three", "four"]
    assert [case.name for case in found.cases] == ["one", "two", "three"]
    for case, said in zip(found.cases, ["cannot be imported", "is registered", "has no 'Missing'"], strict=True):
        with pytest.raises(InputsError, match=said):
            it.load(case)


def test_include_exclude_and_what_was_asked_for(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = """
@gradbot.cases(Square)
def square():
    yield gradbot.Sample(torch.ones(2))
@gradbot.cases(torch.nn.functional.gelu)
def gelu():
    yield gradbot.Sample(torch.ones(2))
"""
    it = project(tmp_path, request, source)
    assert {case.name for case in it.collect().cases} == {"square-2", "gelu-2"}
    it.config = Config(exclude=("*gelu",))
    assert {case.name for case in it.collect().cases} == {"square-2"}
    it.config = Config(flags=("packages",))
    asked = frozenset({it.file.removesuffix(".py")})
    assert {case.name for case in it.collect(modules=asked).cases} == {"square-2"}


def test_functions_modules_and_ops_are_targets(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = """
@torch.library.custom_op("decl_ops::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2
lib = torch.library.Library("decl_ops", "FRAGMENT")
lib.define("only.named(Tensor x) -> Tensor")
lib.impl("only.named", lambda x: x.clone(), "CompositeExplicitAutograd")
class Net(torch.nn.Module):
    def __init__(self, scale=2.0):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(scale))
    def forward(self, x):
        return x * self.scale
def helper(x):
    return x * 3
ops = [double, torch.ops.decl_ops.double, "decl_ops::double", "decl_ops::only"]
for target in [*ops, Square.apply, helper, Net, Net(5.0)]:
    @gradbot.cases(target, dtypes=["float64"])
    def gen():
        yield gradbot.Sample(torch.ones(2))
@gradbot.cases(Net, dtypes=["float64"])
def made():
    yield gradbot.Sample(Net(7.0), torch.ones(2))
"""
    it = project(tmp_path, request, source)
    module = it.file.removesuffix(".py")
    found = it.collect()
    targets = [case.target for case in found.cases]
    net, op = f"{module}:Net", "decl_ops::double"
    assert targets == [op, op, op, "decl_ops::only.named", f"{module}:Square", f"{module}:helper", net, net, net]
    values = []
    for case in found.cases:
        loaded = it.load(case)
        values.append(float(loaded.func(*loaded.args, **loaded.kwargs)[0].detach()))
        assert (loaded.op is not None) == ("::" in case.target)
        assert (loaded.function_class is not None) == case.target.endswith("Square")
    assert values == [2, 2, 2, 1, 1, 3, 2, 5, 7]
    kinds = {each.id: each.kind for each in found.targets}
    assert kinds[net] is kinds[f"{module}:helper"] is TargetKind.CALLABLE
    assert kinds[op] is TargetKind.OP
    assert kinds[f"{module}:Square"] is TargetKind.FUNCTION


def test_a_class_made_in_a_function_is_given_as_object(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    body = BODY.replace("\n", "\n    ")
    source = f"def make():\n    class Local(Function):{body}\n    return Local\nLocal = make()\n"
    source += "@gradbot.cases(Local)\ndef local():\n    yield gradbot.Sample(torch.ones(2))\n"
    source += (
        "@gradbot.cases(__name__ + ':make.<locals>.Local')\ndef named():\n    yield gradbot.Sample(torch.ones(2))\n"
    )
    it = project(tmp_path, request, source)
    for case in it.collect().cases:
        assert case.target.endswith(":make.<locals>.Local")
        assert it.load(case).function_class is not None


def test_samples_that_require_grad_are_kept_as_they_are(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = """
@gradbot.cases(Square)
def some():
    x = torch.ones(2, requires_grad=True)
    yield gradbot.Sample(x, torch.ones(3), [x], y=x * 2)
@gradbot.cases(Square)
def none():
    yield gradbot.Sample(torch.ones(2), [torch.ones(3)], torch.arange(3), y=torch.ones(4))
"""
    it = project(tmp_path, request, source)
    some, none = (it.load(case) for case in it.collect().cases)
    x, constant, (same,) = some.args
    assert (x.requires_grad, constant.requires_grad) == (True, False)
    assert same is x
    assert some.kwargs["y"].requires_grad
    assert some.kwargs["y"].is_leaf
    assert [none.args[0].requires_grad, none.args[1][0].requires_grad, none.args[2].requires_grad] == [
        True,
        True,
        False,
    ]
    assert none.kwargs["y"].requires_grad


def test_a_reference_that_leads_nowhere_is_said(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    it = project(tmp_path, request, "@gradbot.cases(Square)\ndef square():\n    yield gradbot.Sample(torch.ones(2))\n")
    (case,) = it.collect().cases
    import_case(case, it.root)
    for reference, said in {
        f"declared:{it.file}:square#5": "yields fewer than 6 samples",
        f"declared:{it.file}:gone#0": "declares no cases named 'gone' any more",
        "declared:nonsense": "not a reference to a declared sample",
        "other:x#0": "inputs of an unknown source",
        "declared:missing.py:x#0": "missing.py cannot be imported",
    }.items():
        with pytest.raises(InputsError, match=said):
            it.load(replace(case, reference=reference))


def test_two_files_of_the_same_name_do_not_mix(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    case = "import gradbot, torch\n@gradbot.cases(torch.sin)\ndef {0}():\n    yield gradbot.Sample(torch.ones(2))\n"
    helper = "import same_cases_helper\n"
    files = {
        "a/same_cases.py": helper + case.format("one"),
        "b/same_cases.py": helper + case.format("two"),
        "a/same_cases_helper.py": "",
        "b/same_cases_helper.py": "",
    }
    root = write(tmp_path, files)
    names = ("a/same_cases.py", "b/same_cases.py")
    cases = collect(Request(root=root, config=Config(), case_files=names), ("declared",)).cases
    assert [each.name for each in cases] == ["one-2", "two-2"]
    assert [load_case(each, root).args[0].shape for each in cases] == [(2,), (2,)]
