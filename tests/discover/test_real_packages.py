"""Discovery on code that is not ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_projects import ids, target

from gradbot.discover import runtime
from gradbot.discover.static import scan


def test_entmax_roma_and_zuko(tmp_path: Path) -> None:
    static = scan(["entmax", "roma", "zuko"], root=tmp_path)
    found = runtime.discover(static, tmp_path)
    assert ids(found) == ids(static)
    assert found.problems == ()
    assert {each.seen for each in found.targets} == {"both"}
    counts = {package: sum(each.package == package for each in found.targets) for package in ("entmax", "roma", "zuko")}
    assert counts == {"entmax": 12, "roma": 6, "zuko": 3}
    assert all(each.offers.once_differentiable for each in found.targets if each.package == "zuko")
    assert not any(each.offers.once_differentiable for each in found.targets if each.package != "zuko")
    for each in found.targets:
        assert each.location is not None
        for name, place in {"class": each.location, **each.methods}.items():
            line = Path(place.path).read_text("utf-8").splitlines()[place.line - 1]
            assert line.lstrip().startswith("class " if name == "class" else f"def {name}("), (each.id, name, line)
    no_jvp = target(found, "roma.mappings:_ProcrustesRegularizationNoJvp").offers
    assert (no_jvp.jvp, no_jvp.vmap) == (False, "generated")
    assert target(found, "roma.mappings:_ProcrustesRegularization").offers.jvp is True


@pytest.mark.slow
def test_torchs_own_examples_of_ops_and_functions(tmp_path: Path) -> None:
    names = ["torch.testing._internal.custom_op_db", "torch.testing._internal.autograd_function_db"]
    static = scan(names, root=tmp_path)
    found = runtime.discover(static, tmp_path)
    live = {each.id for each in found.targets if each.seen == "both"}
    assert {f"_torch_testing::numpy_{name}" for name in ("cube", "mul", "sort", "take", "nonzero", "nms")} <= live
    assert {f"{names[1]}:{name}" for name in ("NumpyCube", "CubeGenVmap", "NumpyExp_", "Select")} <= live
    assert target(found, "_torch_testing::numpy_nonzero").offers.autograd_formula is False
    assert target(found, "_torch_testing::numpy_cube").offers.autograd_formula is True
    for each in found.targets:
        stated = target(static, each.id)
        assert each.offers == stated.offers, each.id
