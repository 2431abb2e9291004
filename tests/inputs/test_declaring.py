"""What `gradbot.cases` and `gradbot.Sample` take, keep and refuse."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import gradbot
from gradbot.errors import UsageError
from gradbot.inputs.declared import REGISTRY, Declaration, read_options
from gradbot.model import Mode


def declared_by(source: str) -> list[Declaration]:
    namespace: dict[str, object] = {"gradbot": gradbot, "torch": torch}
    exec(source, namespace)
    found = namespace[REGISTRY]
    assert isinstance(found, list)
    return found


def test_a_sample_holds_the_call_and_nothing_else() -> None:
    x = torch.ones(2)
    sample = gradbot.Sample(x, 2, id="a keyword of the call", options=3, self=4)
    assert sample.args == (x, 2)
    assert sample.kwargs == {"id": "a keyword of the call", "options": 3, "self": 4}


def test_naming_and_options_return_new_samples() -> None:
    plain = gradbot.Sample(1)
    named = plain.named("small").options(rtol=1e-3).options(atol=1.0)
    assert (plain.name, plain.declared) == ("", {})
    assert (named.name, named.declared) == ("small", {"rtol": 1e-3, "atol": 1.0})
    assert named.args == (1,)


def test_options_are_held_to_their_types_at_once() -> None:
    with pytest.raises(UsageError, match=r"@gradbot\.cases: unknown key 'rtoll'; did you mean 'rtol'\?"):
        gradbot.cases(torch.sin, rtoll=1.0)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"Sample\.options: rtol: expected a number, found str '1'"):
        gradbot.Sample().options(rtol="1")  # type: ignore[typeddict-item]
    with pytest.raises(UsageError, match="unknown check 'bakward'; did you mean 'backward'"):
        gradbot.cases(torch.sin, checks=["bakward"])
    with pytest.raises(UsageError, match=r"needs a reason: add reason = "):
        gradbot.cases(torch.sin, expect="surrogate")
    with pytest.raises(UsageError, match="expected a name"):
        gradbot.Sample().named("")


def test_torchs_own_dtypes_and_devices_are_understood() -> None:
    table = read_options({"dtypes": [torch.float32, "double"], "devices": [torch.device("cuda", 1)]}, "here", {}).table
    assert table.dtypes == ("float32", "float64")
    assert table.devices == ("cuda:1",)
    assert read_options({"dtypes": torch.float16, "mode": Mode.EXACT}, "here", {}).table.dtypes == ("float16",)


def test_callables_are_kept_as_objects_and_as_names() -> None:
    options = read_options({"reference": torch.nn.functional.gelu, "invariant": "pkg.mod:norm"}, "here", {})
    assert options.callables == {"reference": torch.nn.functional.gelu}
    assert options.table.reference == "torch._C._nn:gelu"
    assert options.table.invariant == "pkg.mod:norm"


def test_every_generator_counts_also_those_of_the_same_name() -> None:
    source = """
for target in (torch.sin, torch.cos):
    @gradbot.cases(target)
    def _():
        yield gradbot.Sample(1)
@gradbot.cases(torch.exp)
@gradbot.cases(torch.log, ids=["a"])
def both():
    yield gradbot.Sample(1)
"""
    found = declared_by(source)
    assert [each.name for each in found] == ["_", "_~2", "both", "both~2"]
    assert [each.target for each in found] == [torch.sin, torch.cos, torch.log, torch.exp]
    assert found[2].ids == ("a",)


def test_the_decorator_returns_the_function() -> None:
    def generator() -> list[gradbot.Sample]:
        return []

    assert gradbot.cases(torch.sin)(generator) is generator


def test_a_generator_takes_dtype_and_device_only() -> None:
    with pytest.raises(UsageError, match="takes `device` and `dtype` at most, found 'shape'"):

        @gradbot.cases(torch.sin)
        def wrong(dtype: object, shape: object) -> list[gradbot.Sample]:
            return []


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(UsageError, match="decorates a function that yields samples"):
        gradbot.cases(torch.sin)(print)  # type: ignore[type-var]


def test_importing_gradbot_does_not_import_torch() -> None:
    code = "import sys, gradbot; gradbot.cases, gradbot.Sample; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
