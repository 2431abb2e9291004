"""Functions with kinks and jumps, inputs that sit on them, and faults that must not be excused for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from benchmarks.diagnosis_cases import Bend
from torch import Tensor

DOUBLE = torch.float64


@dataclass(frozen=True, kw_only=True)
class Kinked:
    """A correct function and how many inputs of which shape it takes."""

    name: str
    func: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...] = ((4, 5),)


def functions() -> list[Kinked]:
    one = {
        "relu": torch.relu,
        "relu6": F.relu6,
        "abs": torch.abs,
        "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
        "elu": F.elu,
        "selu": F.selu,
        "celu": F.celu,
        "hardtanh": F.hardtanh,
        "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish,
        "hardshrink": lambda x: F.hardshrink(x, 1.0),
        "softshrink": lambda x: F.softshrink(x, 1.0),
        "threshold": lambda x: F.threshold(x, 1.0, 0.0),
        "clamp": lambda x: x.clamp(-1, 1),
        "clamp_min": lambda x: x.clamp_min(0),
        "clamp_max": lambda x: x.clamp_max(1),
        "max dim": lambda x: x.max(-1).values,
        "min dim": lambda x: x.min(0).values,
        "amax": lambda x: x.amax(-1),
        "amin": lambda x: x.amin(0),
        "aminmax": lambda x: torch.stack(list(torch.aminmax(x, dim=-1))),
        "max": torch.max,
        "sort": lambda x: x.sort(-1).values,
        "sort down": lambda x: x.sort(0, descending=True).values,
        "topk": lambda x: x.topk(2, -1).values,
        "kthvalue": lambda x: x.kthvalue(2, -1).values,
        "median": lambda x: x.median(-1).values,
        "nanmedian": lambda x: x.nanmedian(-1).values,
        "mode": lambda x: x.mode(-1).values,
        "cummax": lambda x: x.cummax(-1).values,
        "cummin": lambda x: x.cummin(-1).values,
        "max_pool1d": lambda x: F.max_pool1d(x, 2),
        "max_pool2d": lambda x: F.max_pool2d(x[None], 2, 1),
        "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x, 2),
        "norm 2": lambda x: x.norm(dim=-1),
        "norm 1": lambda x: x.norm(p=1, dim=-1),
        "norm inf": lambda x: x.norm(p=float("inf"), dim=-1),
        "fmod": lambda x: x.fmod(2.0),
        "remainder": lambda x: x.remainder(2.0),
        "frac": torch.frac,
        "floor + x": lambda x: x.floor() + x,
        "round * x": lambda x: x.round() * x,
        "sign * x": lambda x: x.sign() * x,
        "trunc + x": lambda x: x.trunc() + x,
        "where": lambda x: torch.where(x > 0, x * x, -x),
        "quantile": lambda x: x.quantile(0.4, -1),
        "renorm": lambda x: x.renorm(2, 0, 1.5),
        "relu of matmul": lambda x: torch.relu(x @ x.t()),
        "abs of sum": lambda x: x.sum(-1).abs(),
        "sum of relu": lambda x: x.relu().sum(),
        "relu squared": lambda x: x.relu().square(),
        "max of softmax": lambda x: x.softmax(-1).amax(-1),
        "logsumexp of relu": lambda x: x.relu().logsumexp(-1),
        "std of abs": lambda x: (x.abs() + torch.arange(5, dtype=DOUBLE)).std(-1),
        "dist to constant": lambda x: torch.dist(x, torch.ones_like(x)),
        "hinge": lambda x: F.relu(1 - x).mean(),
        "margin": lambda x: F.multi_margin_loss(x, torch.tensor([0, 1, 2, 3])),
        "prod": lambda x: x.prod(-1),
        "sinc": torch.sinc,
        "rrelu eval": lambda x: F.rrelu(x, training=False),
        "prelu": lambda x: F.prelu(x, torch.tensor([0.25], dtype=DOUBLE)),
        "tanhshrink": F.tanhshrink,
        "softsign": F.softsign,
        "logsigmoid": F.logsigmoid,
        "maxout": lambda x: torch.maximum(x[:, :2], x[:, 2:4]),
        "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"),
        "smooth l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"),
        "l1": lambda x: F.l1_loss(x, torch.zeros_like(x), reduction="none"),
        "interp": lambda x: F.interpolate(x[None], size=9, mode="linear", align_corners=True)[0].relu(),
        "cdist": lambda x: torch.cdist(x, torch.ones_like(x)),
        "bitonic": lambda x: (x.sort(-1).values * torch.arange(5, dtype=DOUBLE)).sum(-1),
    }
    found = [Kinked(name=name, func=func) for name, func in one.items()]
    two = {
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "fmax": torch.fmax,
        "fmin": torch.fmin,
        "pairwise l1": lambda x, y: (x - y).abs().sum(-1),
        "hinge of product": lambda x, y: F.relu(1 - x * y),
        "max of sum": lambda x, y: (x + y).amax(-1),
    }
    return found + [Kinked(name=name, func=func, shapes=((4, 5), (4, 5))) for name, func in two.items()]


def grids(kinked: Kinked, seed: int) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Inputs that sit on kinks: small integers, zeros among generic numbers, ties, all equal."""
    generator = torch.Generator().manual_seed(seed)

    def draw(shape: tuple[int, ...]) -> dict[str, Tensor]:
        generic = torch.randn(shape, generator=generator, dtype=DOUBLE)
        mask = torch.rand(shape, generator=generator) < 0.4
        return {
            "integers": torch.randint(-2, 3, shape, generator=generator).to(DOUBLE),
            "zeros": torch.where(mask, 0.0, generic),
            "ties": generic.mul(1.5).round() / 1.5,
            "equal": torch.ones(shape, dtype=DOUBLE),
        }

    drawn = [draw(shape) for shape in kinked.shapes]
    for name in drawn[0]:
        yield name, tuple(each[name].requires_grad_() for each in drawn)


def _one(grad: Tensor, factor: float) -> Tensor:
    changed = grad.reshape(-1).clone()
    changed[changed.abs().argmax()] *= factor
    return changed.reshape(grad.shape)


def _dropped(grad: Tensor) -> Tensor:
    changed = grad.clone()
    changed[0] = 0
    return changed


FAULTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x1.1": lambda g, x: g * 1.1,
    "sign": lambda g, x: -g,
    "x2": lambda g, x: g * 2,
    "flipped": lambda g, x: g.flip(-1),
    "one entry x1.5": lambda g, x: _one(g, 1.5),
    "first row zero": lambda g, x: _dropped(g),
    "plus a bit": lambda g, x: g + 0.1 * g.sum(),
}
AT_KINK: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x3 at integers": lambda g, x: torch.where(x == x.round(), 3 * g, g),
    "negative at zero": lambda g, x: torch.where(x == 0, g - 2 * g.abs().max(), g),
}
"""Wrong at the very points where kinks are."""


def broken(kinked: Kinked, bend: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """The function with a fault on its first input."""
    return lambda first, *others: (kinked.func(Bend.apply(first, bend), *others),)
