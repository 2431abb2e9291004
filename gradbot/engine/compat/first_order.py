"""`gradcheck`: backward and forward mode against finite differences, and what a derivative must satisfy besides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradbot.engine.compat.agreement import Scene, imaginary_first, mismatch, pair_of, settle
from gradbot.engine.compat.backward import backward_jacobian, largest_difference
from gradbot.engine.compat.batched import refuse_unbatched_backward, refuse_unbatched_forward
from gradbot.engine.compat.constant import refuse_variation
from gradbot.engine.compat.failures import GradcheckError, failure, finding
from gradbot.engine.compat.forward import forward_jacobian, refuse_random_jvp
from gradbot.engine.compat.forward import refuse_layouts as refuse_input_layouts
from gradbot.engine.compat.layouts import Coordinates, coordinates
from gradbot.engine.compat.linearity import refuse_nonlinear_backward, refuse_nonlinear_jvp
from gradbot.engine.compat.numerical import Numerical, numerical
from gradbot.engine.compat.options import Options
from gradbot.engine.compat.outputs import Outputs, call, refuse_layouts
from gradbot.engine.compat.probe import agrees_backward, agrees_forward, is_small
from gradbot.engine.compat.subject import Subject
from gradbot.engine.compat.undefined import refuse_undefined_grads, refuse_undefined_tangents
from gradbot.engine.compat.zero import refuse_zeros_ignored
from gradbot.phrases import phrase

SEED = 20240229

Projection = Callable[[Scene, Sequence[Coordinates], torch.Generator], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A subject with its outputs and, once they are needed, numerical Jacobians at the inputs."""

    scene: Scene
    coordinates: tuple[Coordinates, ...]
    numericals: tuple[Numerical, ...] = ()


def check(subject: Subject, options: Options) -> None:
    """Runs all checks that `options` ask for, in torch's order, up to the first that fails.

    Raises:
        GradcheckError: a derivative is wrong.
        ValueError, RuntimeError, AssertionError: the function cannot be checked.
        Exception: whatever the function raises.
    """
    generator = torch.Generator().manual_seed(SEED)
    base = _base(subject, options)
    refuse_layouts(base)
    if options.check_forward_ad and not options.check_backward_ad:
        refuse_input_layouts(subject)
    measured = measure(subject, base, options)
    if options.check_backward_ad and not _projections_agree(measured, agrees_backward, generator):
        measured = with_columns(measured)
        _check_backward(measured)
    if options.check_forward_ad:
        refuse_input_layouts(subject)
        refuse_random_jvp(subject, base, measured.coordinates, options, generator)
        if not _projections_agree(measured, agrees_forward, generator):
            _check_forward(with_columns(measured))
        refuse_nonlinear_jvp(subject, base, measured.coordinates, options, generator)
        if options.check_undefined_grad:
            refuse_undefined_tangents(subject, base, measured.coordinates, options, generator)
    if options.check_batched_forward_grad:
        refuse_unbatched_forward(subject, base, generator)
    if options.check_backward_ad and base.differentiable:
        if options.check_batched_grad:
            refuse_unbatched_backward(subject, base, generator)
        refuse_zeros_ignored(subject, base, options)
        refuse_nonlinear_backward(subject, base, measured.coordinates, options, generator)
        if options.check_undefined_grad:
            refuse_undefined_grads(subject, base)


def _projections_agree(measured: Measured, agrees: Projection, generator: torch.Generator) -> bool:
    """Whether fast mode settles it; never in slow mode, nor where the function refuses to be moved."""
    if not measured.scene.options.fast_mode or is_small(measured.scene, measured.coordinates):
        return False
    try:
        return agrees(measured.scene, measured.coordinates, generator)
    except Exception as error:
        if any(each.kind == "user_error_in_forward" for each in getattr(error, "findings", ())):
            return False
        raise


def _base(subject: Subject, options: Options) -> Outputs:
    """The outputs at the inputs, from a function that repeats itself and leaves its inputs alone."""
    kept = [each.detach().clone() for each in subject.tensors]
    base = call(subject, subject.arguments)
    for input, (tensor, before) in enumerate(zip(subject.tensors, kept, strict=True)):
        if not _same(tensor.detach(), before):
            raise failure(phrase("input_mutated", input=input), finding("input_mutated", "backward", input=input))
    again = call(subject, subject.arguments)
    if again.signature == base.signature:
        values = base.values
        spread = largest_difference(values, again.values)
        size = float(values.abs().nan_to_num(0.0, 0.0, 0.0).max()) if len(values) else 0.0
        if spread > max(options.nondet_tol, options.eps * max(options.atol, options.rtol * size)):
            kind = "nondeterministic_forward" if subject.order == 1 else "nondeterministic"
            details = {"largest": spread, "nondet_tol": options.nondet_tol}
            raise failure(phrase("nondeterministic_forward", **details), finding(kind, "determinism", details=details))
    return base


def _same(tensor: Tensor, before: Tensor) -> bool:
    if tensor.is_mkldnn or tensor.layout is not torch.strided:
        tensor, before = tensor.to_dense(), before.to_dense()
    return (
        bool(((tensor == before) | (tensor.isnan() & before.isnan())).all()) if tensor.shape == before.shape else False
    )


def measure(subject: Subject, base: Outputs, options: Options) -> Measured:
    """The coordinates of all checked inputs, without numerical Jacobians yet."""
    own = tuple(coordinates(each, options.masked) for each in subject.tensors)
    return Measured(scene=Scene(subject=subject, base=base, options=options), coordinates=own)


def with_columns(measured: Measured) -> Measured:
    """The same with numerical Jacobians."""
    if measured.numericals:
        return measured
    scene = measured.scene
    found = tuple(numerical(scene.subject, scene.base, each, scene.options.eps) for each in measured.coordinates)
    return replace(measured, numericals=found)


def _check_backward(measured: Measured) -> None:
    scene = measured.scene
    if not scene.base.differentiable:
        refuse_variation(scene, measured.coordinates, measured.numericals, "no_diff_outputs_nonzero", "")
        return
    real_parts: list[GradcheckError] = []
    for output, position in enumerate(scene.base.differentiable):
        analytical = backward_jacobian(scene.subject, scene.base, position, measured.coordinates, scene.options)
        for input in range(len(measured.coordinates)):
            error, first = _settled(
                measured, output, position, input, analytical[input], "jacobian_mismatch_backward", forward=False
            )
            if error is not None and first:
                raise error
            if error is not None:
                real_parts.append(error)
    if real_parts:
        raise real_parts[0]


def _check_forward(measured: Measured) -> None:
    scene = measured.scene
    found = forward_jacobian(scene.subject, scene.base, measured.coordinates, scene.options)
    followed = [
        position
        for position in scene.base.floating
        if position in scene.base.differentiable or position in found.present
    ]
    if not followed:
        refuse_variation(scene, measured.coordinates, measured.numericals, "no_diff_outputs_nonzero", "")
        return
    real_parts: list[GradcheckError] = []
    for output, position in enumerate(followed):
        rows = scene.base.rows[position]
        for input in range(len(measured.coordinates)):
            error, first = _settled(
                measured,
                output,
                position,
                input,
                found.jacobians[input][rows],
                "jacobian_mismatch_forward",
                forward=True,
            )
            if error is not None and first:
                raise error
            if error is not None:
                real_parts.append(error)
    if real_parts:
        raise real_parts[0]


def _settled(
    measured: Measured, output: int, position: int, input: int, analytical: Tensor, kind: str, *, forward: bool
) -> tuple[GradcheckError | None, bool]:
    """The error of one pair, if any, and whether torch would come upon it first: it looks at imaginary parts first."""
    scene = measured.scene
    pair, doubtful = pair_of(
        scene,
        output,
        position,
        input,
        measured.coordinates[input],
        analytical,
        measured.numericals[input],
        forward=forward,
    )
    pair = settle(scene, pair, doubtful, measured.numericals[input], scene.base.rows[position])
    error = mismatch(scene, pair, kind)
    if error is None:
        return None, False
    any_complex = any(scene.base.all[each].is_complex() for each in scene.base.differentiable) or (
        forward and any(each.is_complex() for each in scene.subject.tensors)
    )
    return error, not any_complex or imaginary_first(pair, scene.options)
