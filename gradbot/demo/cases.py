"""Inputs for the demo's functions and ops, declared as any package declares them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradbot.demo.crash import BadPointer
from gradbot.demo.double_backward import Cube
from gradbot.demo.frozen_input import Affine
from gradbot.demo.grad_output_strides import Scale
from gradbot.demo.kink import HardGate
from gradbot.demo.missing_conj import ComplexSquare
from gradbot.demo.missing_term import RowSoftmax
from gradbot.demo.nondeterministic import ScatterMix
from gradbot.demo.none_gradient import Temperature
from gradbot.demo.nonlinear_backward import Clipped
from gradbot.demo.right import Swish
from gradbot.demo.side_effects import Negate
from gradbot.demo.straight_through import Round
from gradbot.demo.undefined_grad import SinCos
from gradbot.demo.wrong_factor import SoftCap
from gradbot.demo.wrong_forward_over_backward import Cubed
from gradbot.demo.wrong_jvp import Sine
from gradbot.demo.wrong_row import RowScale
from gradbot.demo.wrong_shape import Doubled
from gradbot.demo.wrong_vmap import Distance
from gradbot.demo.wrong_vmap_of_jvp import Exponential
from gradbot.inputs.declared import Sample, cases


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """A leaf that requires grad, with normally distributed values."""
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


@cases(Swish)
def swish() -> Iterator[Sample]:
    yield Sample(normal(4, 3)).named("4x3")


@cases(SoftCap)
def soft_cap() -> Iterator[Sample]:
    yield Sample(normal(8, 16), 2.0).named("cap-2")


@cases(RowScale)
def row_scale() -> Iterator[Sample]:
    yield Sample(normal(6, 4), normal(6)).named("6x4")


@cases(RowSoftmax)
def row_softmax() -> Iterator[Sample]:
    yield Sample(normal(3, 5)).named("3x5")


@cases(Temperature)
def temperature() -> Iterator[Sample]:
    yield Sample(normal(4), torch.tensor(1.5, dtype=torch.float64, requires_grad=True)).named("scalar")


@cases(ScatterMix)
def scatter_mix() -> Iterator[Sample]:
    yield Sample(normal(64, 8)).named("64x8")


@cases(Round, expect="straight_through", reason="rounding has no useful derivative; training needs one")
def rounding() -> Iterator[Sample]:
    yield Sample(normal(5)).named("5")


@cases(BadPointer)
def bad_pointer() -> Iterator[Sample]:
    yield Sample(normal(3)).named("3")


@cases("gradbot_demo::squared")
def squared() -> Iterator[Sample]:
    yield Sample(normal(3, 2)).named("3x2")


@cases("gradbot_demo::cubed")
def cubed() -> Iterator[Sample]:
    yield Sample(normal(3, 2)).named("3x2")


@cases("gradbot_demo::row_sums")
def row_sums() -> Iterator[Sample]:
    yield Sample(normal(3, 2)).named("3x2")


@cases(Cube)
def cube() -> Iterator[Sample]:
    yield Sample(normal(4)).named("4")


@cases(Sine)
def sine() -> Iterator[Sample]:
    yield Sample(normal(4)).named("4")


@cases(Distance)
def distance() -> Iterator[Sample]:
    yield Sample(normal(4), normal(4)).named("4")


@cases(SinCos)
def sin_cos() -> Iterator[Sample]:
    yield Sample(normal(4)).named("4")


@cases(Scale)
def scale() -> Iterator[Sample]:
    yield Sample(normal(3, 4)).named("3x4")


@cases(Clipped)
def clipped() -> Iterator[Sample]:
    yield Sample(normal(4)).named("4")


@cases(Negate)
def negate() -> Iterator[Sample]:
    yield Sample(normal(4)).named("4")


@cases(Affine)
def affine() -> Iterator[Sample]:
    yield Sample(normal(3, 4), normal(4), normal(4)).named("3x4")


@cases(ComplexSquare)
def complex_square() -> Iterator[Sample]:
    yield Sample(normal(3, dtype=torch.complex128)).named("3")


@cases(HardGate)
def hard_gate() -> Iterator[Sample]:
    yield Sample(torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)).named("on-the-kink")


@cases(Doubled)
def doubled() -> Iterator[Sample]:
    yield Sample(normal(3, 4)).named("3x4")


@cases(Cubed)
def cubed_function() -> Iterator[Sample]:
    yield Sample(normal(4)).named("4")


@cases(Exponential)
def exponential() -> Iterator[Sample]:
    yield Sample(normal(4)).named("4")
