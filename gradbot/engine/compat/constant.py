"""Functions without differentiable outputs: their outputs must not vary with the inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradbot.engine.compat.agreement import Scene
from gradbot.engine.compat.failures import failure, finding
from gradbot.engine.compat.layouts import Coordinates
from gradbot.engine.compat.numerical import Column, Numerical, difference, evaluate, rounding_of
from gradbot.phrases import phrase

LONGER = (4.0, 16.0, 1024.0)
"""Factors by which the step grows to tell a slope from rounding."""

UNITS = 64.0
"""Changes below this many units in the last place may be rounding."""


def refuse_variation(
    scene: Scene, coordinates: Sequence[Coordinates], numericals: Sequence[Numerical], kind: str, because: str
) -> None:
    """Looks for any output that changes with any input.

    A change counts where it is larger than rounding, or where it grows with the step as a slope does.

    Raises:
        GradcheckError: an output varies.
    """
    for input, (each, found) in enumerate(zip(coordinates, numericals, strict=True)):
        for number, column in enumerate(found.columns):
            moving = found.jacobian[:, number] != 0
            if not moving.any():
                continue
            varies = moving & _varies(scene, each, column, found.jacobian[:, number])
            if varies.any():
                row = int(varies.nonzero()[0])
                output = next(i for i, rows in enumerate(scene.base.rows.values()) if rows.start <= row < rows.stop)
                slope = float(found.jacobian[row, number])
                raise failure(
                    phrase("no_diff_outputs_nonzero", because=because, output=output, input=input, numerical=slope),
                    finding(kind, "backward", output=output, input=input, details={"numerical": slope}),
                )


def _varies(scene: Scene, coordinates: Coordinates, column: Column, slopes: Tensor) -> Tensor:
    eps = scene.options.eps
    first = slopes * 2 * eps
    base = scene.base.values.abs().nan_to_num(1.0, 1.0, 1.0)
    rounding = max((rounding_of(scene.base.all[each]) for each in scene.base.floating), default=0.0)
    bound = UNITS * rounding * torch.clamp(base, min=1.0)
    beyond = ~(first.abs() <= bound)
    alike = torch.ones_like(beyond)
    for factor in LONGER:
        moved = []
        for sign in (1, -1):
            with coordinates.moved(column.which, sign * factor * eps * column.part):
                moved.append(evaluate(scene.subject, coordinates).values)
        if any(len(each) != len(slopes) for each in moved):
            return beyond
        beyond |= ~(difference(*moved).abs() <= bound)
        slope = difference(*moved) / (2 * factor * eps)
        alike &= (slope - slopes).abs() <= 0.01 * slopes.abs()
    return beyond | alike
