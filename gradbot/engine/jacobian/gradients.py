"""First derivatives at many points in one batch, so that differences of gradients need no loop.

`torch.autograd.grad` cannot run inside vmap. But points of a stack do not depend on each other, so that the gradient
of the batched forward by the whole stack is the stack of gradients.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gradbot.engine.problem import Problem


def stacked_gradients(problem: Problem) -> Callable[..., tuple[Tensor, ...]]:
    """A function of stacked inputs and stacked cotangents of all outputs that gives the stacked gradients.

    It raises what batching raises, and always for random functions and for those that read inputs by closure.
    """

    def gradients(*stacks: Tensor) -> tuple[Tensor, ...]:
        if problem.in_place or problem.seed is not None:
            raise RuntimeError("only a function of its arguments alone is batched")
        count = len(problem.inputs)
        with torch.enable_grad():
            inputs = [each.detach().requires_grad_() for each in stacks[:count]]
            outputs = torch.func.vmap(problem.func)(*inputs)
        pairs = [(each, along) for each, along in zip(outputs, stacks[count:], strict=True) if each.requires_grad]
        found = torch.autograd.grad(
            [each for each, _ in pairs], inputs, [along for _, along in pairs], allow_unused=True
        )
        return tuple(
            torch.zeros_like(each) if gradient is None else gradient.to_dense()
            for gradient, each in zip(found, inputs, strict=True)
        )

    return gradients
