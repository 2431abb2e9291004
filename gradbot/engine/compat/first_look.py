"""The engine's first look at a backward, before any Jacobian is formed: what it leaves no doubt about needs none.

Two directions and two cotangents that agree to within rounding, finely enough that a single entry beyond `atol` would
show: entry by entry nothing else could come out. All that is not plainly so is left to the full comparison, which also
says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gradbot.engine.compat.agreement import Scene
from gradbot.engine.compat.backward import rows_twice
from gradbot.engine.compat.failures import stage
from gradbot.engine.compat.forward import signed_like
from gradbot.engine.compat.layouts import Coordinates
from gradbot.engine.compat.options import Options
from gradbot.engine.compat.subject import as_tuple
from gradbot.engine.jacobian.point import OutputsChangedError, Point, look
from gradbot.engine.jacobian.short_probe import Seen, Sight, short_probe
from gradbot.engine.jacobian.tolerances import Tolerances
from gradbot.engine.problem import Linearization, Problem

_SEED = 7


class _ChangedError(Exception):
    """The outputs have another form beside the inputs."""


def leaves_no_doubt(scene: Scene, coordinates: Sequence[Coordinates], generator: torch.Generator) -> bool:
    """Whether the backward is right beyond doubt, and gives the same twice.

    Raises:
        GradcheckError: the backward returns something else when it is run again.
    """
    if not _is_plain(scene):
        return False
    try:
        seen = _seen(scene)
    except (_ChangedError, OutputsChangedError):
        return False
    except Exception:
        if _raises_again(scene):
            return False  # the edge of a domain, or an error that the full comparison comes upon as well
        raise
    if seen.sight is not Sight.CLEAR or not seen.entries:
        return False
    for position in scene.base.differentiable:
        cotangent = signed_like(scene.base.all[position], generator)
        rows_twice(scene.subject, scene.base, position, cotangent, coordinates, scene.options)
    return True


def _seen(scene: Scene) -> Seen:
    tolerances = Tolerances(eps=scene.options.eps, atol=scene.options.atol, rtol=scene.options.rtol)
    return short_probe(_point(scene), "reverse", tolerances, np.random.default_rng(_SEED))


def _raises_again(scene: Scene) -> bool:
    try:
        _seen(scene)
    except Exception:  # noqa: BLE001 - user code may raise anything; the first error is the one to tell
        return True
    return False


def _is_plain(scene: Scene) -> bool:
    """Real strided tensors of float64 with torch's own step: what the first look knows without conversions."""
    tensors = (*scene.subject.tensors, *(scene.base.all[each] for each in scene.base.differentiable))
    plain = all(
        type(each) in (Tensor, torch.nn.Parameter)
        and each.dtype is torch.float64
        and each.layout is torch.strided
        and each.device.type == "cpu"
        and each.numel() > 0
        for each in tensors
    )
    distinct = len({id(each) for each in scene.subject.tensors}) == len(scene.subject.tensors)
    return plain and distinct and bool(scene.base.differentiable) and scene.options.eps == Options().eps


def _point(scene: Scene) -> Point:
    subject, base = scene.subject, scene.base
    signature = base.signature

    def func(*moved: Tensor) -> tuple[Tensor, ...]:
        arguments = list(subject.arguments)
        for position, tensor in zip(subject.checked, moved, strict=True):
            arguments[position] = tensor
        with stage("forward", subject.order):
            outputs: tuple[Tensor, ...] = as_tuple(subject.func(*arguments))  # type: ignore[assignment]
        if tuple((each.shape, each.dtype) for each in outputs) != signature:
            raise _ChangedError
        return tuple(outputs[position] for position in base.differentiable)

    outputs = tuple(base.all[position] for position in base.differentiable)
    problem = Problem(func=func, inputs=subject.tensors, grad_mode=subject.order == 2)
    return look(problem, Linearization(inputs=subject.tensors, outputs=outputs))
