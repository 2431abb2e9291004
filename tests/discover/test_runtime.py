"""What importing registers completes what the sources say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from small_projects import BODY, TORCH, ids, scanned, target

from gradbot import codec
from gradbot.discover import runtime
from gradbot.model import Discovery, Offers, TargetKind

pytestmark = pytest.mark.usefixtures("imports")

SQUARE = f"{TORCH}class Square(Function):{BODY}"


def discovered(folder: Path, files: dict[str, str], *names: str, third_party: bool = False) -> Discovery:
    static = scanned(folder, files, *names)
    found = runtime.discover(codec.loads(codec.dumps(static), Discovery), folder)
    assert codec.loads(codec.dumps(found), Discovery) == found
    return found


def test_both_steps_agree_on_a_plain_function(tmp_path: Path) -> None:
    static = scanned(tmp_path, {"rt_plain/__init__.py": SQUARE}, "rt_plain")
    found = target(runtime.discover(static, tmp_path), "rt_plain:Square")
    stated = target(static, "rt_plain:Square")
    assert found.seen == "both"
    assert (found.location, found.methods, found.offers) == (stated.location, stated.methods, stated.offers)


def test_what_only_running_the_code_makes_is_found(tmp_path: Path) -> None:
    source = f"""{TORCH}
def forward(ctx, x): return x.clone()
def backward(ctx, g): return g
for name in ("One", "Two"):
    globals()[name] = type(name, (Function,), dict(forward=staticmethod(forward), backward=staticmethod(backward)))
def make():
    class Local(Function):
        forward = staticmethod(forward)
    return Local
kept = make()
import torch
for name in ("sin", "cos"):
    torch.library.define(f"rt_made::{{name}}", "(Tensor x) -> Tensor")
"""
    found = discovered(tmp_path, {"rt_made.py": source}, "rt_made.py")
    seen = {each.id: each.seen for each in found.targets}
    assert seen.pop("rt_made:make.<locals>.Local") == "both"
    made = {"rt_made:One", "rt_made:Two", "rt_made::sin", "rt_made::cos"}
    assert {name for name, how in seen.items() if how == "runtime"} == made
    one = target(found, "rt_made:One")
    assert one.location is not None
    assert (one.location.path, one.location.line) == ("rt_made.py", 4)
    assert target(found, "rt_made::sin").kind is TargetKind.OP
    assert target(found, "rt_made::sin").schema == "rt_made::sin(Tensor x) -> Tensor"


def test_a_class_that_changed_its_module_is_listed_once(tmp_path: Path) -> None:
    files = {
        "rt_moved/_impl.py": SQUARE,
        "rt_moved/__init__.py": "from ._impl import Square\nSquare.__module__ = __name__\n",
    }
    found = discovered(tmp_path, files, "rt_moved")
    assert ids(found) == {"rt_moved:Square"}
    assert target(found, "rt_moved:Square").seen == "both"


def test_reexports_are_aliases(tmp_path: Path) -> None:
    files = {
        "rt_again/__init__.py": "from .ops import Square\nfrom . import more\n",
        "rt_again/ops.py": SQUARE,
        "rt_again/more.py": "from rt_again.ops import Square as Other\n",
    }
    found = discovered(tmp_path, files, "rt_again")
    assert ids(found) == {"rt_again.ops:Square"}
    assert target(found, "rt_again.ops:Square").aliases == ("rt_again:Square", "rt_again.more:Other")


def test_third_parties_are_listed_only_if_asked_for(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": "",
        "rt_mine/__init__.py": f"import rt_theirs\n{SQUARE}",
        "lib/rt_theirs.py": f"{SQUARE}\n@torch.library.custom_op('rt_theirs::op', mutates_args=())\n"
        "def op(x: torch.Tensor) -> torch.Tensor: return x.clone()\n",
    }
    sys.path.insert(0, str(tmp_path / "lib"))
    static = scanned(tmp_path, files, "rt_mine")
    assert ids(runtime.discover(static, tmp_path)) == {"rt_mine:Square"}


def test_third_parties_if_asked_for(tmp_path: Path) -> None:
    from gradbot.discover.static import scan

    scanned(tmp_path, {"rt_asks/__init__.py": "import entmax\n"}, "rt_asks")
    static = scan(["rt_asks"], root=tmp_path, third_party=True)
    found = ids(runtime.discover(static, tmp_path))
    assert "entmax.activations:SparsemaxFunction" in found
    assert not any(name.startswith(("torch.", "aten::")) for name in found)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import rt_not_there\n", "ModuleNotFoundError: No module named 'rt_not_there' (at bad.py:1)"),
        ("x = 1\nraise RuntimeError('two\\nlines')\n", "RuntimeError: two lines (at bad.py:2)"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3 (at bad.py:2)"),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt (at bad.py:1)"),
    ],
)
def test_a_module_that_cannot_be_imported_costs_only_itself(
    tmp_path: Path, request: pytest.FixtureRequest, source: str, reason: str
) -> None:
    name = f"rt_bad{abs(hash(request.node.name))}"
    files = {f"{name}/__init__.py": "", f"{name}/bad.py": source + SQUARE, f"{name}/good.py": SQUARE}
    found = discovered(tmp_path, files, name)
    assert {each.id: each.seen for each in found.targets} == {
        f"{name}.bad:Square": "static",
        f"{name}.good:Square": "both",
    }
    (problem,) = found.problems
    assert (problem.module, problem.reason) == (f"{name}.bad", reason)


def test_each_module_is_announced_before_it_is_imported(tmp_path: Path) -> None:
    static = scanned(tmp_path, {"rt_told/__init__.py": "", "rt_told/a.py": ""}, "rt_told")
    told: list[tuple[str, bool]] = []
    runtime.discover(static, tmp_path, on_import=lambda each: told.append((each.name, each.name in sys.modules)))
    assert told == [("rt_told", False), ("rt_told.a", False)]


def test_offers_of_live_classes_win_over_what_the_sources_say(tmp_path: Path) -> None:
    source = f"""{TORCH}
from torch.autograd.function import once_differentiable
def decorate(cls):
    cls.backward = staticmethod(once_differentiable(cls.backward))
    cls.generate_vmap_rule = True
    return cls
@decorate
class Square(Function):{BODY}
"""
    found = target(discovered(tmp_path, {"rt_late.py": source}, "rt_late.py"), "rt_late:Square")
    assert found.offers == Offers(
        backward=True, jvp=False, setup_context=False, vmap="generated", once_differentiable=True
    )


def test_offers_of_live_ops(tmp_path: Path) -> None:
    source = """
        import torch

        @torch.library.custom_op("rt_ops::full", mutates_args=())
        def full(x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @full.register_fake
        def _(x):
            return torch.empty_like(x)

        full.register_vmap(lambda info, dims, x: (x, dims[0]))
        full.register_autograd(lambda ctx, g: g)

        @torch.library.custom_op("rt_ops::plain", mutates_args=())
        def plain(x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        lib = torch.library.Library("rt_ops", "FRAGMENT")
        keys = {"explicit": "CompositeExplicitAutograd", "implicit": "CompositeImplicitAutograd", "cpu": "CPU"}
        for name, key in keys.items():
            lib.define(f"{name}(Tensor x) -> Tensor")
            lib.impl(name, lambda x: x.clone(), key)
        lib.define("cpu.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
        torch.library.register_autograd("rt_ops::cpu", lambda ctx, g: g, lib=lib)
    """
    found = discovered(tmp_path, {"rt_ops_module.py": source}, "rt_ops_module.py")
    offers = {each.id: each.offers for each in found.targets}

    def op(*, formula: bool, fake: bool, vmap: str) -> Offers:
        return Offers(backward=formula, autograd_formula=formula, fake_kernel=fake, vmap=vmap)

    assert offers == {
        "rt_ops::full": op(formula=True, fake=True, vmap="rule"),
        "rt_ops::plain": op(formula=False, fake=False, vmap="none"),
        "rt_ops::explicit": op(formula=False, fake=True, vmap="none"),
        "rt_ops::implicit": op(formula=True, fake=True, vmap="generated"),
        "rt_ops::cpu": op(formula=True, fake=False, vmap="none"),
        "rt_ops::cpu.out": op(formula=False, fake=False, vmap="none"),
    }
    lines = {name: place.line for name, place in target(found, "rt_ops::full").methods.items()}
    assert lines == {"define": 5, "impl": 5, "fake": 9, "vmap": 12, "autograd": 13}
    explicit = target(found, "rt_ops::explicit")
    assert (explicit.module, explicit.seen) == ("rt_ops_module", "runtime")
    assert explicit.location is not None
    assert (explicit.location.path, explicit.location.line) == ("rt_ops_module.py", 19)


def test_an_op_that_torch_wraps_is_that_of_the_function_that_someone_wrote(tmp_path: Path) -> None:
    source = """
        import torch

        def register(name):
            @torch.library.triton_op(f"rt_wrapped::{name}", mutates_args=())
            def doubled(x: torch.Tensor) -> torch.Tensor:
                return x * 2

        register("dou" + "bled")
    """
    found = target(
        discovered(tmp_path, {"rt_wrapped_module.py": source}, "rt_wrapped_module.py"), "rt_wrapped::doubled"
    )
    assert (found.module, found.seen) == ("rt_wrapped_module", "runtime")
    assert found.location is not None
    assert (found.location.path, found.location.line) == ("rt_wrapped_module.py", 6)


def test_torchs_own_registrations_meanwhile_are_not_taken_for_the_packages(tmp_path: Path) -> None:
    source = "import torch._refs\nimport torch.distributed._functional_collectives\n" + SQUARE
    assert ids(discovered(tmp_path, {"rt_lazy.py": source}, "rt_lazy.py")) == {"rt_lazy:Square"}


def test_whose_an_op_of_cpp_is_follows_from_the_library_that_holds_its_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the dispatcher keeps of C++ registrations does not say whose they are; the libraries do."""
    import torch

    from gradbot.discover.runtime.libraries import is_anothers

    for path, content in {
        "site/theirs/_C.so": b"_ZN5torch7LibraryC1\0other_ops\0shared_ops\0",
        "site/mine/_C.so": b"_ZN5torch7LibraryC1\0my_ops\0shared_ops\0",
        "cache/built.so": b"_ZN5torch7LibraryC1\0built_ops\0",
        "site/numeric/_C.so": b"\0none\0",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
        monkeypatch.setattr(torch.ops, "loaded_libraries", torch.ops.loaded_libraries | {str(tmp_path / path)})
    sys.path.insert(0, str(tmp_path / "site"))
    verdicts = {
        name: is_anothers(name, {"mine"}) for name in ("my_ops", "other_ops", "shared_ops", "built_ops", "none")
    }
    assert verdicts == {"my_ops": False, "other_ops": True, "shared_ops": False, "built_ops": False, "none": False}
