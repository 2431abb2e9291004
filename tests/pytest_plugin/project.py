"""A small project as users have it: a package with a Function and an op, and tests of many styles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_plugin.warm import run_pytest

from gradbot import codec
from gradbot.model import Report

KERNELS = """
import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, power=2):
        ctx.save_for_backward(x)
        return x ** power

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output, None


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output


class Scaled(torch.autograd.Function):
    # scale(x), where `scale` is a function that holds `weight`
    @staticmethod
    def forward(ctx, scale, x, weight):
        ctx.save_for_backward(x, weight)
        return scale(x).detach()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return None, grad_output * weight, (grad_output * x).sum()


square = Square.apply


@torch.library.custom_op("kernels_test::tripled", mutates_args=())
def tripled(x: torch.Tensor) -> torch.Tensor:
    return 3 * x


tripled.register_autograd(lambda ctx, grad_output: 3 * grad_output)
"""

TESTS = """
import unittest

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from kernels import Square, Wrong, square, tripled


@pytest.mark.parametrize("size", [2, 3, 90])
def test_square(size):
    x = torch.randn(size, requires_grad=True)
    square(x).sum().backward()
    assert torch.equal(x.grad, 2 * x)


def test_op():
    assert torch.equal(tripled(torch.ones(2, requires_grad=True)), 3 * torch.ones(2))



def test_gradcheck():
    assert gradcheck(square, (torch.randn(3, dtype=torch.float64, requires_grad=True),))
    assert gradgradcheck(square, (torch.randn(3, dtype=torch.float64, requires_grad=True),))


def test_that_expects_a_failure():
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(Wrong.apply, torch.randn(3, dtype=torch.float64, requires_grad=True))
    assert not torch.autograd.gradcheck(
        Wrong.apply, torch.randn(3, dtype=torch.float64, requires_grad=True), raise_exception=False
    )


class TestUnittestStyle(unittest.TestCase):
    def test_it(self):
        self.assertTrue(gradcheck(torch.sin, (torch.randn(3, dtype=torch.float64, requires_grad=True),)))


def test_wrong():
    gradcheck(Wrong.apply, torch.randn(3, dtype=torch.float64, requires_grad=True))


def test_that_patches_the_same_things(monkeypatch):
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    with monkeypatch.context() as patch:
        patch.setattr(torch.autograd.Function, "apply", classmethod(lambda cls, *args: cls))
        patch.setattr(torch.autograd, "gradcheck", lambda *args: "patched")
        patch.setattr(torch._ops.OpOverload, "__call__", lambda op, *args: op)
        assert Wrong.apply(x) is Wrong
        assert torch.autograd.gradcheck(square, x) == "patched"
        assert torch.ops.kernels_test.tripled.default(x) is torch.ops.kernels_test.tripled.default
    assert square(x).shape == (3,)


def test_that_fails_for_another_reason():
    assert gradcheck(square, torch.randn(3, dtype=torch.float64, requires_grad=True))
    assert False
"""


def make_project(folder: Path, tests: str = TESTS) -> Path:
    """Write the project into `folder` and return it."""
    (folder / "kernels").mkdir()
    (folder / "kernels" / "__init__.py").write_text(KERNELS)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_kernels.py").write_text(tests)
    (folder / "pyproject.toml").write_text('[tool.gradbot]\npackages = ["kernels"]\n[tool.pytest.ini_options]\n')
    return folder


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a run of the suite printed, the report that it left, and what was written of its calls, by target."""

    said: str
    report: Report | None
    recordings: dict[str, Any]


def run_suite(folder: Path, *options: str) -> Ran:
    """Run the project's suite with pytest; what `--gradbot-dir` names in `options` is read back."""
    report = folder / ".gradbot" / "report.json"
    report.unlink(missing_ok=True)
    # hypothesis' plugin takes a second to import and has no part in this
    said = run_pytest(folder, ("-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options), _environ(folder))
    written = folder / options[options.index("--gradbot-dir") + 1] if "--gradbot-dir" in options else None
    return Ran(
        said=said,
        report=codec.loads(report.read_bytes(), Report) if report.exists() else None,
        recordings=recordings(written) if written else {},
    )


def recordings(folder: Path) -> dict[str, Any]:
    """The samples in a folder of recordings, by target."""
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {file["target"]: file["samples"] for file in files}


def run_in(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a Python module in the project as a user would."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=_environ(folder),
        capture_output=True,
        text=True,
        timeout=300,
    )


def outcomes(ran: Ran) -> str:
    """pytest's closing line without its time; what gradbot says below it is left out."""
    closing = [line for line in ran.said.splitlines() if line.strip() and not line.startswith(("gradbot:", "  not "))]
    return closing[-1].rpartition(" in ")[0]


def _environ(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "PY_COLORS": "0"}
