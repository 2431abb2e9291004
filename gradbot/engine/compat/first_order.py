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
from gradbot.engine.compat.first_look import leaves_no_doubt
from gradbot.engine.compat.forward import forward_jacobian, refuse_random_jvp
from gradbot.engine.compat.forward import refuse_layouts as refuse_input_layouts
from gradbot.engine.compat.layouts import Coordinates, coordinates
from gradbot.engine.compat.linearity import refuse_nonlinear_backward, refuse_nonlinear_jvp
from gradbot.engine.compat.numerical import Numerical, numerical, rounding_of
from gradbot.engine.compat.options import Options
from gradbot.engine.compat.outputs import Outputs, call, refuse_layouts
from gradbot.engine.compat.probe import agrees_backward, agrees_forward, is_small
from gradbot.engine.compat.subject import Subject
from gradbot.engine.compat.undefined import refuse_undefined_grads, refuse_undefined_tangents
from gradbot.engine.compat.zero import refuse_zeros_ignored
from gradbot.phrases import phrase

SEED = 20240229

LAST_BITS = 1024
"""Values may differ by this many units in the last place: sums in another order do, on some devices."""

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
    if options.check_backward_ad and not _backward_agrees(measured, generator):
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


def _backward_agrees(measured: Measured, generator: torch.Generator) -> bool:
    """Whether no full Jacobian is needed."""
    if leaves_no_doubt(measured.scene, measured.coordinates, generator):
        return True
    return _projections_agree(measured, agrees_backward, generator)


def _projections_agree(measured: Measured, agrees: Projection, generator: torch.Generator) -> bool:
    """Whether projections settle it; never for a handful of entries, nor where the function refuses to be moved."""
    if is_small(measured.scene, measured.coordinates):
        return False
    try:
        return agrees(measured.scene, measured.coordinates, generator)
    except Exception as error:
        if any(each.kind == "user_error_in_forward" for each in getattr(error, "findings", ())):
            return False
        raise


def _base(subject: Subject, options: Options) -> Outputs:
    """The outputs at the inputs, from a function that repeats itself and leaves its inputs alone.

    An unchecked input may be written to as long as the outputs do not depend on it, such as running statistics.

    Raises:
        GradcheckError: a checked input is changed, or a second call returns other values.
    """
    before = [each.detach().clone() if isinstance(each, Tensor) else None for each in subject.arguments]
    base = call(subject, subject.arguments)
    changed = _changed(subject, before)
    for input, position in enumerate(subject.checked):
        if position in changed:
            raise _mutated(input)
    again = call(subject, subject.arguments)
    spread = _spread(base, again)
    if spread > options.nondet_tol:
        if changed:
            raise _mutated(min(changed))
        kind = "nondeterministic_forward" if subject.order == 1 else "nondeterministic"
        details = {"largest": spread, "nondet_tol": options.nondet_tol}
        raise failure(phrase("nondeterministic_forward", **details), finding(kind, "determinism", details=details))
    return base


def _changed(subject: Subject, before: Sequence[Tensor | None]) -> frozenset[int]:
    pairs = enumerate(zip(subject.arguments, before, strict=True))
    return frozenset(
        i for i, (now, was) in pairs if was is not None and isinstance(now, Tensor) and not _same(now, was)
    )


def _mutated(input: int) -> GradcheckError:
    return failure(phrase("input_mutated", input=input), finding("input_mutated", "side_effects", input=input))


def _spread(base: Outputs, again: Outputs) -> float:
    """The largest difference of two calls beyond the last bits of an output; 0.0 where they agree."""
    if again.signature != base.signature:
        return 0.0  # outputs of another form are refused when the inputs are moved
    values, others, spread = base.values, again.values, 0.0
    for position, rows in base.rows.items():
        size = float(values[rows].abs().nan_to_num(0.0, 0.0, 0.0).amax()) if values[rows].numel() else 0.0
        difference = largest_difference(values[rows], others[rows])
        if difference > LAST_BITS * rounding_of(base.all[position]) * size:
            spread = max(spread, difference)
    return spread


def _same(tensor: Tensor, before: Tensor) -> bool:
    tensor = tensor.detach()
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
    if not found:
        return measured
    slopes = [each.jacobian.abs().nan_to_num(0.0, 0.0, 0.0) for each in found]
    steepness = torch.stack([each.amax(1) if each.shape[1] else torch.zeros_like(each.sum(1)) for each in slopes]).amax(
        0
    )
    return replace(measured, numericals=found, scene=replace(scene, steepness=steepness))


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
