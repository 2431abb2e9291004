"""A backward must be linear in its grad_outputs and a jvp in its tangents: beyond what unit vectors can show.

With F the product as a function of the vectors, signed random a and b, and factors s far from 1:

    F(a + b) = F(a) + F(b)        F(s a) = s F(a)

Complex vectors are taken as pairs of reals: a gradient need not be linear over the complex numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from gradbot.engine.compat.backward import as_row, vjp
from gradbot.engine.compat.failures import failure, finding
from gradbot.engine.compat.forward import jvp, random_tangents, signed_like
from gradbot.engine.compat.layouts import Coordinates
from gradbot.engine.compat.numerical import rounding_of
from gradbot.engine.compat.options import Options
from gradbot.engine.compat.outputs import Outputs
from gradbot.engine.compat.subject import Subject
from gradbot.phrases import phrase

Vectors = Mapping[int, Tensor]
Blocks = tuple[Tensor, ...]


def refuse_nonlinear_backward(
    subject: Subject, base: Outputs, coordinates: Sequence[Coordinates], options: Options, generator: torch.Generator
) -> None:
    """Probes the backward of all differentiable outputs together.

    Raises:
        GradcheckError: it is not linear.
    """
    outputs = [base.all[position] for position in base.differentiable]

    def product(vectors: Vectors) -> Blocks:
        gradients = vjp(subject, outputs, [vectors[position] for position in base.differentiable])
        return tuple(as_row(each, own) for each, own in zip(gradients, coordinates, strict=True))

    def draw() -> Vectors:
        return {position: signed_like(base.all[position], generator) for position in base.differentiable}

    gap = nonlinearity(product, draw, options, _coarsest(outputs + list(subject.tensors)))
    if gap is not None:
        raise failure(
            phrase("nonlinear_backward", deviation=gap),
            finding("nonlinear_backward", "backward", details={"deviation": gap}),
        )


def refuse_nonlinear_jvp(
    subject: Subject, base: Outputs, coordinates: Sequence[Coordinates], options: Options, generator: torch.Generator
) -> None:
    """Probes the jvp with tangents of all checked inputs together.

    Raises:
        GradcheckError: it is not linear.
    """
    if not base.floating:
        return

    def product(vectors: Vectors) -> Blocks:
        rows = jvp(subject, base, vectors, options).rows
        return tuple(rows[own] for own in base.rows.values())

    def draw() -> Vectors:
        tangents = random_tangents(subject, coordinates, generator)
        return {position: tangent for position, tangent in tangents.items() if tangent is not None}

    tensors = [base.all[position] for position in base.floating] + list(subject.tensors)
    gap = nonlinearity(product, draw, options, _coarsest(tensors))
    if gap is not None:
        raise failure(
            phrase("nonlinear_jvp", deviation=gap), finding("nonlinear_jvp", "forward_ad", details={"deviation": gap})
        )


def nonlinearity(
    product: Callable[[Vectors], Blocks], draw: Callable[[], Vectors], options: Options, rounding: float
) -> float | None:
    """The largest deviation from linearity, relative to the largest element of its block; None where it is tolerable.

    `rounding` is that of the coarsest dtype involved.
    """
    a, b = draw(), draw()
    of_a, of_b = product(a), product(b)
    probes = [
        ({position: a[position] + b[position] for position in a}, tuple(x + y for x, y in zip(of_a, of_b, strict=True)))
    ]
    # in half precision large and tiny factors leave the range
    factors = (-1e6, 1e-5) if rounding < 1e-5 else (-16.0, 0.0625)
    probes += [({position: k * a[position] for position in a}, tuple(k * x for x in of_a)) for k in factors]
    weight = sum(float(each.abs().sum()) for each in a.values())
    relative = max(options.rtol, 1e-6, 16 * rounding)
    for vectors, expected in probes:
        unit = max((float(each.abs().max()) for each in vectors.values() if each.numel()), default=0.0)
        for found, wanted in zip(product(vectors), expected, strict=True):
            # where the derivative itself is not finite there is nothing to say about linearity
            if not found.numel() or not wanted.isfinite().all():
                continue
            largest = float(torch.maximum(found.abs(), wanted.abs()).max())
            # a derivative that is zero to within the tolerance may be all rounding
            if largest <= max(options.atol, 64 * rounding) * unit:
                continue
            # tolerances are meant for unit vectors; atol never excuses a tenth of the result
            slack = min(options.atol * weight * unit, 0.1 * largest) + 2 * options.nondet_tol * weight * unit
            deviation = float((found - wanted).abs().nan_to_num(torch.inf, torch.inf).max())
            if deviation > relative * largest + slack:
                return deviation / largest
    return None


def _coarsest(tensors: Sequence[Tensor]) -> float:
    return max((rounding_of(each) for each in tensors), default=2.0**-52)
