"""Functions are found in sources however they are made, with their places and what they offer."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_projects import BODY, TORCH, ids, scanned, target

from gradbot.model import Location, Offers, TargetKind


def found_in(tmp_path: Path, source: str) -> set[str]:
    return ids(scanned(tmp_path, {"pkg/__init__.py": "", "pkg/mod.py": source}, "pkg"))


@pytest.mark.parametrize(
    ("head", "base"),
    [
        ("import torch", "torch.autograd.Function"),
        ("import torch as th", "th.autograd.Function"),
        ("import torch.autograd", "torch.autograd.Function"),
        ("import torch.autograd as ag", "ag.Function"),
        ("from torch import autograd", "autograd.Function"),
        ("from torch import autograd as ag", "ag.function.Function"),
        ("from torch.autograd import Function", "Function"),
        ("from torch.autograd import Function as F", "F"),
        ("from torch.autograd.function import Function", "Function"),
        ("from torch.autograd.function import InplaceFunction", "InplaceFunction"),
        ("from torch.autograd import *", "Function"),
        ("import torch\nBase = torch.autograd.Function", "Base"),
        ("import torch\nBase, Other = torch.autograd.Function, 3", "Base"),
        (
            "try:\n    from missing import Function\nexcept ImportError:\n    from torch.autograd import Function",
            "Function",
        ),
        ("import torch\nif True:\n    B = object\nelse:\n    B = torch.autograd.Function", "B"),
    ],
)
def test_under_every_name_that_an_import_gives(tmp_path: Path, head: str, base: str) -> None:
    if "import *" in head:
        head = "from torch.autograd import Function as Function\n" + head
    assert found_in(tmp_path, f"{head}\nclass Square({base}):{BODY}") == {"pkg.mod:Square"}


def test_other_classes_are_not_functions(tmp_path: Path) -> None:
    source = f"import torch\nclass A(torch.nn.Module):{BODY}\nclass B:{BODY}\nclass C(dict):{BODY}\n"
    assert found_in(tmp_path, source) == set()


def test_a_parameter_named_function_is_not_taken_for_torchs(tmp_path: Path) -> None:
    source = (
        "from torch.autograd import Function\ndef make(Function):\n    class A(Function):\n        pass\n    return A\n"
    )
    assert found_in(tmp_path, source) == set()


def test_a_class_without_a_forward_cannot_be_called_and_is_not_listed(tmp_path: Path) -> None:
    source = f"{TORCH}class Base(Function):\n    shared = 1\nclass Real(Base):{BODY}"
    assert found_in(tmp_path, source) == {"pkg.mod:Real"}


def test_through_base_classes_of_other_modules_and_reexports(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "from .base import *\n",
        "pkg/base.py": f"{TORCH}class Base(Function):{BODY}",
        "pkg/deep/__init__.py": "from ..base import Base as Renamed\n",
        "pkg/deep/a.py": "from . import Renamed\nclass A(Renamed):\n    pass\n",
        "pkg/deep/b.py": "import pkg\nclass B(pkg.Base):\n    pass\n",
        "pkg/deep/c.py": "from .. import base as it\nclass C(it.Base):\n    pass\n",
    }
    found = scanned(tmp_path, files, "pkg")
    assert ids(found) == {"pkg.base:Base", "pkg.deep.a:A", "pkg.deep.b:B", "pkg.deep.c:C"}
    assert target(found, "pkg.deep.a:A").methods["forward"].path == "pkg/base.py"


def test_modules_that_import_each_other_do_not_trap_the_scan(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "from .a import A\nfrom .b import B\n",
        "pkg/a.py": "from .b import B\nfrom pkg import A\nclass A2(B):\n    pass\nA = A or B\n",
        "pkg/b.py": "from .a import A\nB = A\nB = B.x\nB = B or A\n",
    }
    assert ids(scanned(tmp_path, files, "pkg")) == set()


def test_through_base_classes_of_installed_packages(tmp_path: Path) -> None:
    source = "from zuko.utils import Bisection\nimport roma.mappings as m\nclass A(Bisection):\n    pass\n"
    source += "class B(m._ProcrustesManualDerivatives):\n    generate_vmap_rule = False\n"
    found = scanned(tmp_path, {"pkg/__init__.py": source}, "pkg")
    assert target(found, "pkg:A").offers.once_differentiable is True
    assert target(found, "pkg:B").offers == Offers(
        backward=True, jvp=True, setup_context=True, vmap="none", once_differentiable=False
    )


def test_a_class_of_an_unknown_base_in_the_shape_of_a_function_is_listed(tmp_path: Path) -> None:
    source = (
        f"from not_installed import Base, Other\nclass A(Base):{BODY}\nclass B(Other):\n    def forward(self, x): ..."
    )
    assert found_in(tmp_path, source) == {"pkg.mod:A"}


def test_nested_in_functions_and_classes(tmp_path: Path) -> None:
    body = BODY.replace("\n", "\n        ")
    source = f"{TORCH}class Outer:\n    class Inner(Function):{body}\n"
    source += f"def make():\n    def deeper():\n        class Local(Function):{body}\n        return Local\n"
    assert found_in(tmp_path, source) == {"pkg.mod:Outer.Inner", "pkg.mod:make.<locals>.deeper.<locals>.Local"}


def test_made_by_calls(tmp_path: Path) -> None:
    source = """
        import types
        import torch
        from torch.autograd.function import once_differentiable

        def forward(ctx, x):
            return x.clone()

        def backward(ctx, grad_output):
            return grad_output

        members = dict(forward=staticmethod(forward), backward=staticmethod(once_differentiable(backward)))
        jvp = staticmethod(lambda ctx, tangent: tangent)
        One = type("One", (torch.autograd.Function,), {"forward": staticmethod(forward), "jvp": jvp})
        Two = type("Two", (torch.autograd.Function,), members)
        Three = types.new_class("Three", (torch.autograd.Function,), {}, lambda namespace: None)
        Four = type(f"Four{len('x')}", (Two,), {})
        Plain = type("Plain", (object,), {"forward": forward})
    """
    found = scanned(tmp_path, {"pkg/__init__.py": source}, "pkg")
    assert ids(found) == {"pkg:One", "pkg:Two", "pkg:Three", "pkg:Four"}
    one, two, three = (target(found, f"pkg:{name}") for name in ("One", "Two", "Three"))
    assert (one.offers.backward, one.offers.jvp) == (False, True)
    assert two.methods["forward"] == Location(path="pkg/__init__.py", line=6, end_line=7, symbol="forward")
    assert two.offers.once_differentiable is True
    assert three.offers == Offers()


def test_decorated(tmp_path: Path) -> None:
    source = f"{TORCH}from functools import wraps\n@wraps\n@torch.compiler.disable()\nclass A(Function):{BODY}"
    found = scanned(tmp_path, {"pkg/__init__.py": source}, "pkg")
    assert target(found, "pkg:A").location == Location(path="pkg/__init__.py", line=6, end_line=15, symbol="A")


def test_places_and_offers(tmp_path: Path) -> None:
    source = """
        from torch.autograd import Function
        from torch.autograd.function import once_differentiable as once

        class Full(Function):
            generate_vmap_rule = False

            @staticmethod
            def forward(x):
                return x

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            @once
            def backward(ctx, grad_output):
                return grad_output

            @staticmethod
            def jvp(ctx, tangent):
                return tangent

            @staticmethod
            def vmap(info, in_dims, x):
                return x, 0

        class Old(Function):
            @classmethod
            def forward(cls, ctx, x):
                return x

            vjp = staticmethod(lambda ctx, g: g)

        class Without(Full):
            jvp = Function.jvp
            backward = None
            generate_vmap_rule = True
    """
    found = scanned(tmp_path, {"pkg/__init__.py": source}, "pkg")
    full = target(found, "pkg:Full")
    assert full.kind is TargetKind.FUNCTION
    assert (full.package, full.module, full.qualname) == ("pkg", "pkg", "Full")
    assert full.offers == Offers(backward=True, jvp=True, setup_context=True, vmap="rule", once_differentiable=True)
    lines = {name: place.line for name, place in full.methods.items()}
    assert lines == {"forward": 9, "backward": 18, "jvp": 22, "vmap": 26, "setup_context": 13}
    assert target(found, "pkg:Old").offers == Offers(
        backward=True, jvp=False, setup_context=False, vmap="none", once_differentiable=False
    )
    assert (target(found, "pkg:Without").offers.backward, target(found, "pkg:Without").offers.jvp) == (False, False)


def test_a_file_that_is_not_python_costs_only_itself(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/good.py": f"{TORCH}class A(Function):{BODY}",
        "pkg/bad.py": "def broken(:\n",
        "pkg/nul.py": "x = '\0'\n",
    }
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "latin.py").write_bytes(b"# caf\xe9\n")
    found = scanned(tmp_path, files, "pkg")
    assert ids(found) == {"pkg.good:A"}
    reasons = {each.module: each.reason for each in found.problems}
    assert reasons["pkg.bad"].startswith("SyntaxError: ")
    assert reasons["pkg.bad"].endswith("(line 1)")
    assert reasons["pkg.latin"].startswith("SyntaxError: ")
    assert set(reasons) == {"pkg.bad", "pkg.nul", "pkg.latin"}


def test_no_user_code_runs(tmp_path: Path) -> None:
    trap = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\nraise SystemExit(3)\n"
    found = scanned(
        tmp_path, {"pkg/__init__.py": trap, "pkg/mod.py": f"{trap}{TORCH}class A(Function):{BODY}"}, "pkg", "pkg.mod"
    )
    assert ids(found) == {"pkg.mod:A"}
    assert not (tmp_path / "ran").exists()


def test_a_class_that_is_made_of_itself_ends(tmp_path: Path) -> None:
    source = f"""{TORCH}
class Mixin: pass
def extended(cls):
    cls = type(cls.__name__ + "Extended", (cls, Mixin), {{}})
    return cls
Square = type("Square", (Function,), {{"forward": staticmethod(lambda ctx, x: x)}})
Square = type("Square", (Square, Mixin), {{}})
class Plain(Function):{BODY}
"""
    assert "rec:Plain" in ids(scanned(tmp_path, {"rec.py": source}, "rec.py"))
