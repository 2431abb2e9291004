"""A stratified part of torch's OpInfo database: right derivatives agree, and faults that are put into them differ."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from benchmarks.opinfo_cases import OpCase, cases, op_name, ops, problem_of, second_order
from faults.inject import inject
from faults.kinds import FAULTS

import gradbot
from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Verdict
from gradbot.engine.problem import Problem
from gradbot.model import CheckSettings, Mode, Outcome

_NAMES = (
    # elementwise, reductions, shapes, indexing
    *("sin", "log", "pow", "atan2", "clamp", "where", "sum", "var", "cumprod", "logsumexp"),
    *("transpose", "cat", "gather", "index_add", "as_strided.partial_views", "roll", "topk", "sort", "expand"),
    # linear algebra, transforms
    *("mm", "baddbmm", "linalg.svdvals", "linalg.inv", "linalg.eigvalsh", "cholesky", "fft.rfft", "stft"),
    # networks
    *("nn.functional.conv2d", "nn.functional.layer_norm", "nn.functional.gelu", "nn.functional.max_pool2d"),
    *("nn.functional.cross_entropy", "nn.functional.batch_norm", "nn.functional.scaled_dot_product_attention"),
    *("nn.functional.embedding", "nn.functional.interpolate.bicubic", "torch.ops.aten._safe_softmax.default"),
    # custom Functions and ops, with and without vmap
    *("NumpyMulAutogradFunction", "MulGenVmapAutogradFunction", "NumpyCubeCustomOp"),
)
_FAULTED = ("sin", "mm", "cumprod", "nn.functional.gelu", "NumpyMulAutogradFunction")


def _first(name: str) -> OpCase:
    found: list[Any] = [op for op in ops() if op_name(op) == name]
    return next(iter(cases(found[0], limit=1)))


def _verdict(problem: Problem, direction: str = "reverse", mode: Mode = Mode.AUTO) -> Verdict:
    return compare_jacobians(problem, direction=direction, settings=CheckSettings(mode=mode), seed=0).verdict


@pytest.mark.parametrize("name", _NAMES)
def test_right_derivatives_agree(name: str) -> None:
    case = _first(name)
    problem = problem_of(case.func, case.inputs)
    assert _verdict(problem) is Verdict.AGREE
    assert _verdict(problem, mode=Mode.FAST) is Verdict.AGREE
    if case.forward:
        assert _verdict(problem, direction="forward") is Verdict.AGREE
    if case.second_order:
        assert _verdict(second_order(problem)) is Verdict.AGREE


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "missing conj"])
@pytest.mark.parametrize("name", _FAULTED)
def test_a_fault_in_the_backward_differs(name: str, fault: str) -> None:
    case = _first(name)
    if not FAULTS[fault].applies(case.inputs[0].shape):
        pytest.skip("this fault does not show in this shape")
    assert _verdict(problem_of(inject(case.func, FAULTS[fault]), case.inputs)) is Verdict.DIFFER


@pytest.mark.parametrize("fault", ["x1.01", "sign", "entry x2", "row dropped", "rolled", "tile edge"])
@pytest.mark.parametrize("order", ["jvp", "double backward"])
def test_a_fault_in_other_derivatives_differs(order: str, fault: str) -> None:
    case = _first("sin")
    problem = problem_of(inject(case.func, FAULTS[fault], order=order), case.inputs)
    assert _verdict(problem) is Verdict.AGREE
    if order == "jvp":
        assert _verdict(problem, direction="forward") is Verdict.DIFFER
    else:
        assert _verdict(second_order(problem)) is Verdict.DIFFER


@pytest.mark.parametrize(
    ("name", "index", "dtype"),
    [
        # inputs of a million, whose phase wide steps carry past many periods
        pytest.param("logsumexp", 11, torch.complex128, id="periodic in the imaginary part"),
        # the second input says where the function jumps; moved, it is another function
        pytest.param("nn.functional.hinge_embedding_loss", 0, torch.float64, id="jumps at its target"),
        pytest.param("as_strided.partial_views", 1, torch.float64, id="reads beside its input"),
    ],
)
def test_samples_that_a_step_takes_elsewhere_agree(name: str, index: int, dtype: torch.dtype) -> None:
    op = next(op for op in ops(dtype) if op_name(op) == name)
    case = list(cases(op, dtype=dtype, limit=index + 1))[index]
    problem = problem_of(case.func, case.inputs)
    assert _verdict(problem) is Verdict.AGREE
    assert _verdict(problem, mode=Mode.EXACT) is Verdict.AGREE


def test_the_rounding_of_a_backward_is_no_small_error() -> None:
    # of one element the normalised value never moves, and its gradient is what rounding leaves of zero
    op = next(op for op in ops() if op_name(op) == "native_layer_norm")
    case = list(cases(op, limit=11))[10]
    backward = gradbot.check(case.func, case.inputs, checks=["backward"]).checks[0]
    assert (backward.outcome, backward.findings) == (Outcome.PASSED, ())
