"""registration: opcheck's four tests, each by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from engine.checks.wrong import assert_fails, assert_passes, kinds, real, result_of
from torch import Tensor

from gradbot.engine.api import check_case
from gradbot.model import Case, CheckResult, CheckSettings, InputSource, Outcome


@pytest.fixture(scope="module")
def ops() -> Iterator[Any]:
    with torch.library._scoped_library("gradbot_checks", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
        torch.library.register_autograd("gradbot_checks::twice", lambda ctx, g: 2 * g, lib=library)
        torch.library.register_fake("gradbot_checks::twice", torch.empty_like, lib=library)

        library.define("rows(Tensor x) -> Tensor")
        library.impl("rows", lambda x: x.sum(1), "CompositeExplicitAutograd")
        torch.library.register_fake("gradbot_checks::rows", torch.empty_like, lib=library)

        def scale(x: Tensor) -> Tensor:
            x.data.mul_(2)
            return x.clone()

        library.define("scale(Tensor x) -> Tensor")
        library.impl("scale", scale, "CompositeExplicitAutograd")
        torch.library.register_fake("gradbot_checks::scale", torch.empty_like, lib=library)
        yield torch.ops.gradbot_checks


def registration(op: Any, *inputs: Tensor) -> CheckResult:
    settings = CheckSettings(checks=("registration",))
    case = Case(id="op", target="op", name="", source=InputSource.DECLARED, reference="", settings=settings)
    return result_of(check_case(case, op, inputs, {}, op=op), "registration")


def test_a_well_registered_op_passes(ops: Any) -> None:
    assert_passes(registration(ops.twice.default, real(3)))


def test_a_fake_kernel_of_another_shape_is_found(ops: Any) -> None:
    result = registration(ops.rows.default, real(3, 2).detach())
    assert_fails(result, "registration_fake")
    assert "registration_schema" not in kinds(result)


def test_an_undeclared_mutation_is_found(ops: Any) -> None:
    assert_fails(registration(ops.scale.default, real(3).detach()), "registration_schema")


def test_a_test_without_anything_to_test_is_told(ops: Any) -> None:
    result = registration(ops.twice.default, real(3).detach())
    assert result.outcome is Outcome.PASSED
    assert [each.details["test"] for each in result.notes] == ["test_autograd_registration"]
