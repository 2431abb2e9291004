"""The first derivative as a function of its own, (inputs, cotangents) -> gradients: what second-order checks see."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradbot.engine.checks.context import Context, cotangents
from gradbot.engine.jacobian.gradients import stacked_gradients
from gradbot.engine.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDerivative:
    """`problem` has the inputs and cotangents of the outputs as inputs, and a gradient an input as outputs.

    `detached` are the outputs that hang on no graph at all: gradients that the second derivative takes for constants.
    `zero` are those that are None.
    """

    problem: Problem
    detached: tuple[int, ...]
    zero: tuple[int, ...]

    @property
    def all_detached(self) -> bool:
        """No gradient can be differentiated, by inputs or by cotangents."""
        return len(self.detached) + len(self.zero) == len(self.problem.output_names)


def first_derivative(context: Context) -> FirstDerivative:
    """Raises what user code raises."""
    problem = context.problem
    count = len(problem.inputs)
    linear = problem.linearize()
    directions = tuple(each.requires_grad_() for each in cotangents(linear.outputs, context.generator(6)))

    def gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
        inputs, along = tensors[:count], tensors[count:]
        with torch.enable_grad():
            watched = [each if each.requires_grad else each.detach().requires_grad_() for each in inputs]
            outputs = problem.func(*watched)
            live = [k for k, each in enumerate(outputs) if each.requires_grad]
            found = torch.autograd.grad(
                [outputs[k] for k in live],
                watched,
                [along[k] for k in live],
                create_graph=True,
                allow_unused=True,
            )
        # a missing gradient counts as zeros and keeps its place
        return tuple(
            torch.zeros_like(each) if gradient is None else _strided(gradient)
            for gradient, each in zip(found, watched, strict=True)
        )

    second = replace(
        problem,
        func=gradients,
        inputs=(*problem.inputs, *directions),
        input_names=(*problem.input_names, *(f"grad of {each}" for each in problem.output_names)),
        output_names=tuple(f"grad of {each}" for each in problem.input_names),
        grad_mode=True,
        stacked=stacked_gradients(problem),
    )
    with torch.enable_grad():
        found = torch.autograd.grad(
            linear.outputs, linear.inputs, list(directions), create_graph=True, allow_unused=True
        )
    return FirstDerivative(
        problem=second,
        detached=tuple(k for k, each in enumerate(found) if each is not None and not each.requires_grad),
        zero=tuple(k for k, each in enumerate(found) if each is None),
    )


def _strided(gradient: Tensor) -> Tensor:
    return gradient if gradient.layout is torch.strided else gradient.to_dense()
