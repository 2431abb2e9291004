"""Triton kernels are checked on a machine without a GPU, in Triton's interpreter, and the report says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from run.projects import check, write

from gradbot.model import Outcome, Report

pytest.importorskip("triton", reason="Triton is published for Linux only")

KERNELS = '''
import torch
import triton
import triton.language as tl


@triton.jit
def silu_forward(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size)
    tl.store(y_ptr + at, x / (1 + tl.exp(-x)), mask=at < size)


@triton.jit
def silu_backward(x_ptr, grad_ptr, out_ptr, size, TERM: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size)
    grad = tl.load(grad_ptr + at, mask=at < size)
    s = 1 / (1 + tl.exp(-x))
    tl.store(out_ptr + at, grad * (s + TERM * x * s * (1 - s)), mask=at < size)


def run_forward(ctx, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    silu_forward[(triton.cdiv(x.numel(), 16),)](x, y, x.numel(), BLOCK=16)
    ctx.save_for_backward(x)
    return y


def run_backward(ctx, grad_output, term):
    (x,) = ctx.saved_tensors
    grad = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 16),)
    silu_backward[grid](x, grad_output.contiguous(), grad, x.numel(), TERM=term, BLOCK=16)
    return grad


class RightSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return run_forward(ctx, x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return run_backward(ctx, grad_output, 1)


class WrongSilu(torch.autograd.Function):
    """Forgets the term x s (1 - s)."""

    @staticmethod
    def forward(ctx, x):
        return run_forward(ctx, x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return run_backward(ctx, grad_output, 0)
'''

CASES = """
import torch
import gradbot
from p.kernels import RightSilu, WrongSilu


@gradbot.cases(RightSilu, checks=["backward"])
def right():
    yield gradbot.Sample(torch.randn(21, dtype=torch.float64))


@gradbot.cases(WrongSilu, checks=["backward"])
def wrong():
    yield gradbot.Sample(torch.randn(21, dtype=torch.float64))
"""


def _report(root: Path, *, interpret: bool) -> Report:
    write(root, {"p/__init__.py": "", "p/kernels.py": KERNELS, "cases_p.py": CASES})
    return check(root, "p", interpret_triton=interpret)


def test_a_right_and_a_wrong_kernel_are_told_apart_without_a_gpu(tmp_path: Path) -> None:
    report = _report(tmp_path, interpret=True)
    outcomes = {result.case.target: result.outcome for result in report.results}
    assert outcomes == {"p.kernels:RightSilu": Outcome.PASSED, "p.kernels:WrongSilu": Outcome.FAILED}
    assert "triton_interpreted" in {note.code for note in report.notes}
    assert {environment.flags["TRITON_INTERPRET"] for environment in report.environments} == {"1"}


def test_the_interpreter_can_be_turned_off(tmp_path: Path) -> None:
    report = _report(tmp_path, interpret=False)
    assert {result.outcome for result in report.results} == {Outcome.ERRORED}
    assert "triton_interpreted" not in {note.code for note in report.notes}
