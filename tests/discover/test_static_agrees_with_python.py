"""Whatever way classes are spelled, the static scan and Python itself agree on which of them are Functions."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from small_projects import write

from gradbot.discover.runtime.functions import function_id, function_target
from gradbot.discover.static import scan

HEAD = """
import types
import torch
import torch.autograd as ag
from torch import autograd
from torch.autograd import Function, Function as Renamed
from torch.autograd.function import Function as Third, once_differentiable as once

Alias = Function
class Holder:
    Base = Renamed
class Mixin:
    @staticmethod
    def vmap(info, in_dims, x):
        return x, 0
def forward(ctx, x):
    return x.clone()
"""
BASES = ["torch.autograd.Function", "ag.Function", "autograd.Function", "Function", "Renamed", "Third", "Alias"]
BASES += ["Holder.Base", "torch.nn.Module", "object", "dict"]
METHODS = {
    "forward": "@staticmethod\ndef forward(ctx, x):\n    return x",
    "backward": "@staticmethod\ndef backward(ctx, g):\n    return g",
    "once": "@staticmethod\n@once\ndef backward(ctx, g):\n    return g",
    "jvp": "jvp = staticmethod(lambda ctx, t: t)",
    "no jvp": "jvp = Function.jvp",
    "setup_context": "@staticmethod\ndef setup_context(ctx, inputs, output):\n    pass",
    "generated": "generate_vmap_rule = True",
    "not generated": "generate_vmap_rule = False",
    "pass": "pass",
}


@st.composite
def modules(draw: st.DrawFn) -> str:
    """A module of classes that derive from Function, from each other, and from other things."""
    parts, names = [HEAD], list(BASES)
    for number in range(draw(st.integers(1, 6))):
        name = f"C{number}"
        base = draw(st.sampled_from(names))
        methods = draw(st.lists(st.sampled_from(sorted(METHODS)), min_size=1, max_size=4, unique=True))
        form = draw(st.sampled_from(["class", "mixin", "nested", "type", "alias"]))
        body = "\n".join(METHODS[each] for each in methods).replace("\n", "\n    ")
        if form == "type":
            parts.append(f'{name} = type("{name}", ({base},), {{"forward": staticmethod(forward)}})')
        elif form == "alias":
            parts.append(f"{name} = {base}")
        elif form == "nested":
            inner = body.replace("\n", "\n    ")
            parts.append(f"class {name}:\n    class Inner({base}):\n        {inner}")
            name = f"{name}.Inner"
        else:
            bases = f"Mixin, {base}" if form == "mixin" and base not in ("object", "dict") else base
            parts.append(f"class {name}({bases}):\n    {body}")
        names.append(name)
    return "\n".join(parts) + "\n"


def _classes(namespace: dict[str, object]) -> dict[str, type]:
    found = {}
    waiting = [each for each in namespace.values() if isinstance(each, type)]
    while waiting:
        cls = waiting.pop()
        if cls.__module__ != "generated" or function_id(cls) in found:
            continue
        waiting += [each for each in vars(cls).values() if isinstance(each, type)]
        found[function_id(cls)] = cls
    functions = {name: cls for name, cls in found.items() if issubclass(cls, torch.autograd.Function)}
    plain = torch.autograd.function._SingleLevelFunction.forward
    return {name: cls for name, cls in functions.items() if cls.forward is not plain}  # type: ignore[attr-defined]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(modules())
def test_agreement(source: str) -> None:
    namespace: dict[str, object] = {"__name__": "generated"}
    try:
        exec(compile(source, "generated.py", "exec"), namespace)
    except TypeError:  # bases in an order that Python does not allow
        reject()
    live = _classes(namespace)
    with tempfile.TemporaryDirectory() as folder:
        found = scan(["generated.py"], root=write(Path(folder), {"generated.py": source}), search_cases=False)
        assert {each.id for each in found.targets} == set(live)
        for each in found.targets:
            assert each.offers == function_target(live[each.id], Path(folder)).offers, each.id
