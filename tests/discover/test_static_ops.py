"""Registrations with torch.library are found in sources, in Python and in C++."""

from __future__ import annotations

from pathlib import Path

from small_projects import ids, scanned, target

from gradbot.discover.static.cpp import cpp_registrations
from gradbot.model import Discovery, Offers


def found_in(tmp_path: Path, source: str) -> Discovery:
    return scanned(tmp_path, {"pkg/__init__.py": source}, "pkg")


def lines(found: Discovery, op: str) -> dict[str, int]:
    return {name: place.line for name, place in target(found, op).methods.items()}


def test_custom_op_with_everything(tmp_path: Path) -> None:
    source = """
        import torch

        @torch.library.custom_op("mylib::square", mutates_args=())
        def square(x: torch.Tensor) -> torch.Tensor:
            return x * x

        @square.register_fake
        def _(x):
            return torch.empty_like(x)

        @square.register_vmap
        def square_vmap(info, in_dims, x):
            return x, 0

        def setup(ctx, inputs, output):
            pass

        def backward(ctx, grad):
            return grad

        square.register_autograd(backward, setup_context=setup)

        @square.register_kernel("cuda")
        def square_cuda(x):
            return x
    """
    found = found_in(tmp_path, source)
    op = target(found, "mylib::square")
    assert op.offers == Offers(backward=True, autograd_formula=True, fake_kernel=True, vmap="rule")
    assert lines(found, "mylib::square") == {"define": 5, "impl": 5, "autograd": 19, "fake": 9, "vmap": 13}
    assert op.location is not None
    assert (op.location.path, op.location.line, op.location.symbol) == ("pkg/__init__.py", 5, "square")
    assert (op.package, op.module, op.triton) == ("pkg", "pkg", False)


def test_custom_op_without_a_formula(tmp_path: Path) -> None:
    source = """
        from torch.library import custom_op as op

        @op("mylib::plain", mutates_args=())
        def plain(x): return x
    """
    assert target(found_in(tmp_path, source), "mylib::plain").offers == Offers(
        backward=False, autograd_formula=False, fake_kernel=False, vmap="none"
    )


def test_triton_op(tmp_path: Path) -> None:
    source = """
        import torch
        from torch.library import triton_op

        @triton_op("mylib::fast", mutates_args={})
        def fast(x): return x

        torch.library.register_autograd("mylib::fast", lambda ctx, g: g)
    """
    op = target(found_in(tmp_path, source), "mylib::fast")
    assert op.triton
    assert op.offers.autograd_formula is True


def test_names_put_together_from_constants(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/names.py": 'NAMESPACE = "mylib"\n',
        "pkg/ops.py": """
            import torch
            from .names import NAMESPACE
            from . import names
            NAME = f"{NAMESPACE}::one"
            two = torch.library.custom_op(names.NAMESPACE + "::two", lambda x: x, mutates_args=())
            three = torch.library.custom_op(name="mylib::three", mutates_args=())(two)

            @torch.library.custom_op(NAME, mutates_args=())
            def one(x): return x

            def dynamic(name):
                return torch.library.custom_op(name, mutates_args=())
        """,
        "pkg/formulas.py": """
            from .ops import one, two
            from torch.library import register_autograd
            two.register_autograd(lambda ctx, g: g)
            register_autograd(one, lambda ctx, g: g)
        """,
    }
    found = scanned(tmp_path, files, "pkg")
    assert ids(found) == {"mylib::one", "mylib::two", "mylib::three"}
    formulas = {each.id: each.offers.autograd_formula for each in found.targets}
    assert formulas == {"mylib::one": True, "mylib::two": True, "mylib::three": False}


def test_libraries(tmp_path: Path) -> None:
    source = """
        import torch
        from torch.library import Library, impl, register_fake

        lib = Library("mylib", "DEF")
        lib.define("add(Tensor x, Tensor y) -> Tensor")
        lib.define("scale.Scalar(Tensor x, float s) -> Tensor")
        lib.define("composite(Tensor x) -> Tensor")
        lib.define("bare(Tensor x) -> Tensor")

        @impl(lib, "add", "CPU")
        def add(x, y):
            return x + y

        def scale(x, s):
            return x * s

        lib.impl("scale.Scalar", scale, "CompositeExplicitAutograd")
        lib.impl("scale.Scalar", scale, "AutogradCPU")
        lib.impl("composite", scale)

        @register_fake("mylib::add")
        def _(x, y):
            return x

        class Holder:
            def __init__(self):
                self.lib = Library("held", "FRAGMENT")
                self.lib.define("kept(Tensor x) -> Tensor")

        with torch.library._scoped_library("scoped", "FRAGMENT") as inner:
            inner.define("op(Tensor x) -> Tensor")
    """
    found = found_in(tmp_path, source)
    expected = {"mylib::add", "mylib::scale.Scalar", "mylib::composite", "mylib::bare", "held::kept", "scoped::op"}
    assert ids(found) == expected
    assert target(found, "mylib::add").schema == "mylib::add(Tensor x, Tensor y) -> Tensor"
    assert lines(found, "mylib::add") == {"define": 6, "impl": 12, "fake": 23}
    assert target(found, "mylib::scale.Scalar").offers.autograd_formula is True
    assert target(found, "mylib::composite").offers == Offers(
        backward=True, autograd_formula=True, fake_kernel=True, vmap="none"
    )
    assert target(found, "mylib::bare").offers.autograd_formula is False
    assert target(found, "mylib::add").offers.autograd_formula is False


def test_functions_of_torch_library(tmp_path: Path) -> None:
    source = """
        import torch

        torch.library.define("mylib::sine", "(Tensor x) -> Tensor")

        @torch.library.impl("mylib::sine", ("cpu", "cuda"))
        def sine(x): return x.sin()

        @torch.library.impl_abstract("mylib::sine")
        def sine_fake(x): return x

        @torch.library.register_vmap(torch.ops.mylib.sine)
        def sine_vmap(info, in_dims, x): return x, 0

        torch.library.register_autograd("mylib::sine", lambda ctx, g: g)
    """
    found = found_in(tmp_path, source)
    op = target(found, "mylib::sine")
    assert op.schema == "mylib::sine(Tensor x) -> Tensor"
    assert op.offers == Offers(backward=True, autograd_formula=True, fake_kernel=True, vmap="rule")
    assert lines(found, "mylib::sine") == {"define": 4, "impl": 7, "autograd": 15, "fake": 10, "vmap": 13}


def test_kernels_for_torchs_own_ops_are_no_targets(tmp_path: Path) -> None:
    source = """
        import torch
        aten = torch.library.Library("aten", "IMPL")
        aten.impl("add.Tensor", lambda x, y: x, "CPU")
        torch.library.register_fake("prims::sin", lambda x: x)
    """
    assert ids(found_in(tmp_path, source)) == set()


def test_a_formula_for_an_op_of_a_cpp_extension_makes_it_a_target(tmp_path: Path) -> None:
    source = 'import torch\ntorch.library.register_autograd("mylib::compiled", lambda ctx, g: g)\n'
    assert target(found_in(tmp_path, source), "mylib::compiled").offers.autograd_formula is True


CPP = r"""
#include <torch/library.h>
// TORCH_LIBRARY(commented, m) { m.def("out(Tensor x) -> Tensor"); }
/* TORCH_LIBRARY(also, m) {
   m.def("out(Tensor x) -> Tensor"); } */
TORCH_LIBRARY(mylib, m) {
  m.def("muladd(Tensor a, Tensor b, float c) -> Tensor");
  m.def(
      "split(Tensor a, "
      "int n) -> Tensor[]");
  m.def(TORCH_SELECTIVE_SCHEMA("mylib::selective(Tensor a) -> Tensor"));
  m.def("composite", &composite);
}
TORCH_LIBRARY_FRAGMENT(mylib, library) { library.def("more.out(Tensor a, *, Tensor(a!) out) -> Tensor(a!)"); }
TORCH_LIBRARY_IMPL(mylib, CPU, m) { m.impl("muladd", &muladd_cpu); }
TORCH_LIBRARY_IMPL(mylib, Autograd, m) {
  m.impl("muladd", &muladd_autograd);
}
TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("add.Tensor", &add); }
"""


def test_cpp_sources(tmp_path: Path) -> None:
    files = {"pyproject.toml": "", "pkg/__init__.py": "", "csrc/ops.cpp": CPP}
    found = scanned(tmp_path, files)
    names = {"mylib::muladd", "mylib::split", "mylib::selective", "mylib::composite", "mylib::more.out"}
    assert ids(found) == names
    muladd = target(found, "mylib::muladd")
    assert muladd.schema == "mylib::muladd(Tensor a, Tensor b, float c) -> Tensor"
    assert muladd.location is not None
    assert (muladd.location.path, muladd.location.line) == ("csrc/ops.cpp", 7)
    assert lines(found, "mylib::muladd") == {"define": 7, "impl": 15, "autograd": 17}
    assert target(found, "mylib::split").schema == "mylib::split(Tensor a, int n) -> Tensor[]"
    formulas = {each.id for each in found.targets if each.offers.autograd_formula}
    assert formulas == {"mylib::muladd", "mylib::composite"}


def test_a_single_cpp_file(tmp_path: Path) -> None:
    (tmp_path / "ops.cu").write_text(CPP)
    found = scanned(tmp_path, {}, "ops.cu")
    assert "mylib::muladd" in ids(found)
    keys = {each.key for each in cpp_registrations(tmp_path / "ops.cu", "ops.cu") if each.op == "mylib::muladd"}
    assert keys == {"", "CPU", "Autograd"}
