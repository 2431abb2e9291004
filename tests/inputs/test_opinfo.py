"""OpInfo entries become declared cases that hold what the entries say."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.custom_op_db import custom_op_db

from gradbot import inputs
from gradbot.config import load
from gradbot.engine.api import check_case
from gradbot.errors import UsageError
from gradbot.inputs.declared import REGISTRY, Declaration
from gradbot.inputs.opinfo import from_opinfo
from gradbot.model import CheckSettings, Outcome


def entry(name: str, variant: str = "") -> Any:
    return next(each for each in op_db if each.name == name and each.variant_test_name == variant)


def declared(*arguments: Any, **options: Any) -> list[Declaration]:
    globals().pop(REGISTRY, None)
    from_opinfo(*arguments, **options)
    return list(globals().pop(REGISTRY, []))


def test_every_entry_gives_its_first_samples() -> None:
    (found,) = declared(entry("mul"), limit=2)
    assert found.name == "opinfo-mul-float64"
    assert [sample.name for sample in found.generator()] == ["sample-0", "sample-1"]


def test_the_wrapper_and_the_output_process_of_a_sample_are_part_of_the_function() -> None:
    (found,) = declared(entry("linalg.cholesky"), limit=1)
    (sample,) = found.generator()
    lopsided = sample.args[1].detach() + torch.triu(torch.ones_like(sample.args[1]), 1)
    process, rest = sample.args[0], sample.args[2:]
    assert torch.isfinite(found.target(process, lopsided, *rest, **sample.kwargs)).all()


def test_tolerances_and_flags_of_the_entry_hold() -> None:
    (found,) = declared(entry("cumprod"))
    assert found.options.table.nondet_tol == entry("cumprod").gradcheck_nondet_tol
    unsupported = next(
        each for each in op_db if each.supports_autograd and not each.supports_gradgrad and torch.float64 in each.dtypes
    )
    (found,) = declared(unsupported)
    assert "double_backward" in (found.options.table.skip_checks or ())


def test_expected_failures_of_the_entry_are_expected() -> None:
    import unittest

    from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo, SampleInput

    def samples(op: Any, device: str, dtype: torch.dtype, requires_grad: bool, **kwargs: Any) -> Any:
        yield SampleInput(torch.ones(2, device=device, dtype=dtype, requires_grad=requires_grad))

    mark = DecorateInfo(unittest.expectedFailure, "TestBwdGradients", "test_fn_gradgrad")
    own = OpInfo("own", op=torch.sin, dtypes=(torch.float64,), sample_inputs_func=samples, skips=(mark,))
    (found,) = declared(own)
    assert found.options.table.expect == "failure"
    assert "jacobian_mismatch_double_backward" in (found.options.table.expect_kinds or ())
    assert "double_backward" in (found.options.table.reason or "")


def test_options_of_the_caller_win() -> None:
    (found,) = declared(entry("sin"), nondet_tol=0.5)
    assert found.options.table.nondet_tol == 0.5


def test_unknown_names_and_other_objects_are_one_clear_line() -> None:
    with pytest.raises(UsageError, match="no_such_op"):
        from_opinfo(op_db, names=["no_such_op"])
    with pytest.raises(UsageError, match="found int"):
        from_opinfo([3])


def test_custom_op_entries_are_declared() -> None:
    names = {each.name for each in declared(custom_op_db, limit=1)}
    assert "opinfo-NumpyCubeAutogradFunction-float64" in names or any("NumpyCube" in name for name in names)


def test_cases_of_a_file_run_through_to_verdicts(tmp_path: Path) -> None:
    (tmp_path / "gradcases.py").write_text(
        textwrap.dedent(
            """
            import gradbot
            from torch.testing._internal.common_methods_invocations import op_db

            gradbot.from_opinfo(op_db, names=["sin", "linalg.cholesky"], limit=1)
            """
        )
    )
    request = inputs.Request(root=tmp_path, config=load(None, tmp_path, {}, {}), case_files=("gradcases.py",))
    cases = inputs.collect(request).cases
    assert {case.target for case in cases} == {"gradcases:opinfo.sin", "gradcases:opinfo.linalg.cholesky"}
    for case in cases:
        loaded = inputs.load_case(case, tmp_path)
        result = check_case(case, loaded.func, loaded.args, dict(loaded.kwargs))
        assert loaded.settings == CheckSettings(
            **{name: getattr(case.settings, name) for name in CheckSettings.__slots__}
        )
        assert result.outcome is Outcome.PASSED, result
