"""Functions and faults for the benchmark of diagnosis: every fault knows what it should be called and where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

DOUBLE = torch.float64


class Bend(torch.autograd.Function):
    """The identity, whose backward is whatever `bend(grad_output, value)` says."""

    @staticmethod
    def forward(ctx, x, bend):
        ctx.save_for_backward(x)
        ctx.bend = bend
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.bend(grad, *ctx.saved_tensors), None


@dataclass(frozen=True, kw_only=True)
class Function:
    """A correct function of tensors with the shapes of its inputs; the first is the one that faults are put on."""

    name: str
    func: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    positive: bool = False

    def inputs(self, seed: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        drawn = [torch.randn(shape, generator=generator, dtype=DOUBLE) for shape in self.shapes]
        return tuple((each.abs() + 0.3) if self.positive else each for each in drawn)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is done to a gradient. `names` are the patterns that say it; `place` are parameters that must be right.

    `side` "input": done to the gradient of the first input, "output": done to grad_output. `bend(grad, value)` may
    return None where the fault makes no sense for the shape.
    """

    name: str
    bend: Callable[[Tensor, Tensor], Tensor | None]
    names: tuple[str, ...]
    side: str = "input"
    place: dict[str, object] = field(default_factory=dict)


def functions() -> list[Function]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(5, 5, generator=generator, dtype=DOUBLE)
    kernel = torch.randn(2, 2, 3, generator=generator, dtype=DOUBLE)
    unary = {
        "sin": torch.sin,
        "exp": torch.exp,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "square": torch.square,
        "softplus": F.softplus,
        "gelu": F.gelu,
        "silu": F.silu,
        "atan": torch.atan,
        "erf": torch.erf,
        "cumsum": lambda x: x.cumsum(-1),
        "softmax": lambda x: x.softmax(-1),
        "log_softmax": lambda x: x.log_softmax(-1),
        "logsumexp": lambda x: x.logsumexp(-1),
        "mean of squares": lambda x: x.square().mean(-1),
        "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
        "normalize": lambda x: F.normalize(x, dim=-1),
        "transpose": lambda x: x.sin().t(),
        "flip": lambda x: x.sin().flip(-1),
        "roll": lambda x: x.exp().roll(1, 0),
        "gram": lambda x: x @ x.t(),
        "sin of linear": lambda x: torch.sin(x @ weight),
        "elu": F.elu,
        "mish": F.mish,
    }
    found = [Function(name=name, func=func, shapes=((6, 5),)) for name, func in unary.items()]
    found += [Function(name=f"{name} square", func=func, shapes=((5, 5),)) for name, func in list(unary.items())[:4]]
    found += [
        Function(name="log", func=torch.log, shapes=((6, 5),), positive=True),
        Function(name="sqrt", func=torch.sqrt, shapes=((6, 5),), positive=True),
        Function(name="lgamma", func=torch.lgamma, shapes=((6, 5),), positive=True),
        Function(name="mul", func=torch.mul, shapes=((6, 5), (6, 5))),
        Function(name="mm", func=torch.mm, shapes=((4, 5), (5, 3))),
        Function(name="bmm", func=torch.bmm, shapes=((2, 3, 4), (2, 4, 3))),
        Function(name="linear", func=F.linear, shapes=((4, 5), (3, 5), (3,))),
        Function(name="conv1d", func=lambda x: F.conv1d(x, kernel), shapes=((2, 2, 7),)),
        Function(
            name="bilinear form", func=lambda x, y: torch.einsum("ij,jk->ik", x.sin(), y.cos()), shapes=((4, 5), (5, 4))
        ),
        Function(name="inverse", func=lambda x: torch.linalg.inv(x + 4 * torch.eye(4, dtype=DOUBLE)), shapes=((4, 4),)),
    ]
    return found


def _row(grad: Tensor, index: int, factor: float) -> Tensor:
    scaled = grad.clone()
    scaled[index] *= factor
    return scaled


def _column(grad: Tensor, chosen: slice | int, factor: float) -> Tensor:
    scaled = grad.clone()
    scaled[..., chosen] *= factor
    return scaled


def _swap(grad: Tensor, dim: int) -> Tensor:
    order = list(range(grad.shape[dim]))
    order[0], order[2 % len(order)] = order[2 % len(order)], order[0]
    return grad.index_select(dim, torch.tensor(order))


def _square(grad: Tensor) -> Tensor | None:
    return grad.transpose(-1, -2) if grad.shape[-1] == grad.shape[-2] else None


def _relaid(grad: Tensor) -> Tensor | None:
    return None if grad.shape[-1] == grad.shape[-2] else grad.transpose(-1, -2).reshape(grad.shape)


def _single(grad: Tensor, factor: float) -> Tensor:
    scaled = grad.reshape(-1).clone()
    scaled[scaled.numel() // 2] *= factor
    return scaled.reshape(grad.shape)


def _needs(dims: int, bend: Callable[[Tensor, Tensor], Tensor | None]) -> Callable[[Tensor, Tensor], Tensor | None]:
    return lambda grad, value: bend(grad, value) if grad.dim() >= dims else None


def _tile(grad: Tensor, tile: int) -> Tensor | None:
    if grad.shape[0] < 3 * tile:
        return None
    scaled = grad.clone()
    scaled[::tile] = scaled[::tile] * 1.7 + scaled.mean()
    return scaled


def _first(grad: Tensor) -> Tensor:
    return grad.reshape(-1)[:1].view((1,) * grad.dim()).expand_as(grad).clone()


def _field(grad: Tensor) -> Tensor:
    return torch.randn(grad.shape, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)


SCALES = (-1.0, 2.0, 0.5, 1.01, 3.7, -2.0)


def faults() -> list[Fault]:
    """One entry a kind of fault."""
    found = [
        Fault(
            name=f"x{factor}",
            bend=lambda g, x, c=factor: g * c,
            names=("sign",) if factor == -1.0 else ("constant_factor",),
            place={"factor": factor},
        )
        for factor in SCALES
    ]
    found += [
        Fault(name="times n", bend=lambda g, x: g * x.numel(), names=("constant_factor",)),
        Fault(name="over n", bend=lambda g, x: g / x.numel(), names=("constant_factor",)),
        Fault(name="over sqrt n", bend=lambda g, x: g / x.numel() ** 0.5, names=("constant_factor",)),
        Fault(name="transposed", bend=_needs(2, lambda g, x: _square(g)), names=("transpose",)),
        Fault(name="transposed layout", bend=_needs(2, lambda g, x: _relaid(g)), names=("transpose",)),
        Fault(name="flipped", bend=lambda g, x: g.flip(-1), names=("permutation",), place={"how": "flipped"}),
        Fault(name="shifted", bend=lambda g, x: g.roll(1, 0), names=("permutation",), place={"how": "shifted by 1"}),
        Fault(
            name="shifted back",
            bend=lambda g, x: g.roll(-1, -1),
            names=("permutation",),
            place={"how": "shifted by -1"},
        ),
        Fault(name="rows swapped", bend=lambda g, x: _swap(g, 0), names=("swapped_rows", "permutation")),
        Fault(name="columns swapped", bend=lambda g, x: _swap(g, -1), names=("swapped_rows", "permutation")),
        Fault(
            name="last column copied",
            bend=lambda g, x: torch.cat([g[..., :-1], g[..., -2:-1]], -1),
            names=("copied_slice",),
        ),
        Fault(name="row of zeros", bend=lambda g, x: _row(g, 1, 0.0), names=("zero_rows",), place={"rows": "1"}),
        Fault(name="column of zeros", bend=lambda g, x: _column(g, 1, 0.0), names=("zero_rows",), place={"rows": "1"}),
        Fault(name="sign of a row", bend=lambda g, x: _row(g, 2, -1.0), names=("scaled_slices",), place={"rows": "2"}),
        Fault(name="last column x2", bend=lambda g, x: _column(g, -1, 2.0), names=("scaled_slices",)),
        Fault(name="one entry x1.1", bend=lambda g, x: _single(g, 1.1), names=("scaled_elements",)),
        Fault(name="one entry zero", bend=lambda g, x: _single(g, 0.0), names=("zero_elements",)),
        Fault(
            name="wrong from column 2 on",
            bend=lambda g, x: torch.cat([g[..., :2], 1.3 * g[..., 2:] + g[..., 2:].sum(-1, keepdim=True)], -1),
            names=("beyond_index",),
            place={"index": 2},
        ),
        Fault(
            name="zero from row 2 on",
            bend=lambda g, x: torch.cat([g[:2], 0 * g[2:]]) if len(g) > 3 else None,
            names=("beyond_index", "zero_rows"),
        ),
        Fault(
            name="wrong at every 2nd row", bend=lambda g, x: _tile(g, 2), names=("tile_multiples",), place={"tile": 2}
        ),
        Fault(name="mean subtracted", bend=lambda g, x: g - g.mean(), names=("mean_subtracted",)),
        Fault(
            name="mean along last dim subtracted",
            bend=lambda g, x: g - g.mean(-1, keepdim=True),
            names=("mean_subtracted",),
        ),
        Fault(name="zero", bend=lambda g, x: torch.zeros_like(g), names=("detached_branch",)),
        Fault(
            name="through bfloat16",
            bend=lambda g, x: g.bfloat16().double(),
            names=("dtype_round_trip",),
            place={"dtype": "bfloat16"},
        ),
        Fault(
            name="through float16",
            bend=lambda g, x: g.half().double(),
            names=("dtype_round_trip",),
            place={"dtype": "float16"},
        ),
        Fault(name="zero where negative", bend=lambda g, x: g * (x >= 0), names=("only_where",)),
        Fault(name="x1.5 where negative", bend=lambda g, x: torch.where(x < 0, 1.5 * g, g), names=("only_where",)),
        Fault(
            name="wrong where |x| > 1",
            bend=lambda g, x: torch.where(x.abs() > 1, g * 0.7 * x, g),
            names=("only_where",),
        ),
        Fault(
            name="wrong where small", bend=lambda g, x: torch.where(x.abs() < 0.5, g * 0.1, g), names=("only_where",)
        ),
        Fault(name="times x", bend=lambda g, x: g * x, names=("extra_factor",), place={"quantity": "x"}),
        Fault(name="over x", bend=lambda g, x: g / x, names=("missing_factor",), place={"quantity": "x"}),
        Fault(name="times 1 - x²", bend=lambda g, x: g * (1 - x * x), names=("extra_factor",)),
        # On grad_output.
        Fault(
            name="grad_output ignored",
            bend=lambda g, x: torch.ones_like(g),
            names=("grad_output_ignored",),
            side="output",
        ),
        Fault(
            name="first of grad_output",
            bend=lambda g, x: _first(g),
            names=("grad_output_first_element",),
            side="output",
        ),
        Fault(
            name="sum of grad_output",
            bend=lambda g, x: g.sum().expand_as(g).clone(),
            names=("grad_output_reduced",),
            side="output",
        ),
        Fault(
            name="mean of grad_output",
            bend=lambda g, x: g.mean().expand_as(g).clone(),
            names=("grad_output_reduced",),
            side="output",
        ),
        Fault(
            name="sum along last dim",
            bend=_needs(2, lambda g, x: g.sum(-1, keepdim=True).expand_as(g).clone()),
            names=("grad_output_reduced",),
            side="output",
        ),
        Fault(
            name="grad_output transposed", bend=_needs(2, lambda g, x: _square(g)), names=("transpose",), side="output"
        ),
        Fault(
            name="grad_output in another order",
            bend=_needs(2, lambda g, x: _relaid(g)),
            names=("transpose",),
            side="output",
        ),
        Fault(name="grad_output flipped", bend=lambda g, x: g.flip(0), names=("permutation",), side="output"),
        Fault(name="grad_output shifted", bend=lambda g, x: g.roll(1, -1), names=("permutation",), side="output"),
        Fault(
            name="grad_output's mean subtracted",
            bend=lambda g, x: g - g.mean(),
            names=("mean_subtracted",),
            side="output",
        ),
        Fault(
            name="output row dropped",
            bend=lambda g, x: _row(g, 1, 0.0),
            names=("zero_rows",),
            side="output",
            place={"rows": "1"},
        ),
        Fault(
            name="output row x3",
            bend=lambda g, x: _row(g, 1, 3.0),
            names=("scaled_slices",),
            side="output",
            place={"rows": "1"},
        ),
        Fault(name="times y", bend=lambda g, y: g * y, names=("extra_factor",), side="output", place={"quantity": "y"}),
        Fault(
            name="one row scaled, one column zero",
            bend=_needs(2, lambda g, x: _column(_row(g, 1, 2.0), 1, 0.0)),
            names=("compound",),
        ),
        Fault(
            name="x0.9 from column 2 on",
            bend=lambda g, x: _column(g, slice(2, None), 0.9),
            names=("beyond_index", "scaled_slices"),
        ),
        Fault(name="rolled by two", bend=lambda g, x: g.roll(2, -1), names=("permutation",)),
        # Nothing that has a name: silence is right.
        Fault(name="noise", bend=lambda g, x: g * (1 + 0.3 * _field(g)), names=()),
        Fault(name="noise added", bend=lambda g, x: g + 0.3 * _field(g) * g.roll(1, -1), names=()),
        Fault(name="a function of x", bend=lambda g, x: g * torch.cos(3 * x + 1), names=()),
        Fault(name="noise on grad_output", bend=lambda g, y: g * (1 + 0.3 * _field(g)), names=(), side="output"),
        # More than one thing wrong.
        Fault(name="x2 and a row of zeros", bend=lambda g, x: _row(2 * g, 1, 0.0), names=("compound",)),
        Fault(name="sign and one entry", bend=lambda g, x: _single(-g, 3.3), names=("compound",)),
        Fault(name="flipped and one row x1.4", bend=lambda g, x: _row(g.flip(-1), 1, 1.4), names=("compound",)),
        Fault(
            name="x1.5, wrong where x > 1", bend=lambda g, x: torch.where(x > 1, g.sin(), 1.5 * g), names=("compound",)
        ),
    ]
    return found


def broken(function: Function, fault: Fault) -> Callable[..., tuple[Tensor, ...]]:
    """The function with a fault in it."""

    def func(first: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        if fault.side == "input":
            return (function.func(Bend.apply(first, fault.bend), *others),)
        return (Bend.apply(function.func(first, *others), fault.bend),)

    return func


def applies(function: Function, fault: Fault, inputs: tuple[Tensor, ...]) -> bool:
    """Whether the fault makes sense for the shapes."""
    value = inputs[0] if fault.side == "input" else function.func(*inputs)
    grad = torch.randn(value.shape, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    try:
        return fault.bend(grad, value) is not None
    except (RuntimeError, IndexError):
        return False
