"""A branch that the function detaches: with its history put back, the backward is right.

The function is run once more with `detach`, `.data` and grad mode switched off made to do nothing. Where the gradient
then equals the numerical one, what was detached is what is missing, and the line that detached it is known.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gradbot.engine.diagnose.prediction import Prediction
from gradbot.engine.diagnose.view import View
from gradbot.engine.directional import flat
from gradbot.engine.problem import Linearization, Problem
from gradbot.model import Scalar

_DETACHING = (torch.Tensor.detach, torch.detach, torch.Tensor.data.__get__)  # type: ignore[attr-defined]


def predictions(view: View, problem: Problem) -> Iterator[Prediction]:
    """A = N without the contribution of what was detached, as measured by putting it back."""
    watching = _Attached()
    try:
        with torch.enable_grad(), watching:
            outputs = problem.func(*problem.inputs)
        if not watching.places:
            return
        attached = Linearization(inputs=problem.inputs, outputs=tuple(outputs))
        # One vjp tells whether anything changed at all: what a custom forward detaches does not matter.
        ones = torch.ones_like(view.y)
        if torch.allclose(_gradient(attached, view, ones), view.gradient(ones), rtol=0, atol=0, equal_nan=True):
            return
        whole = torch.stack([_gradient(attached, view, _unit(view, row))[view.columns] for row in view.rows.tolist()])
    except (RuntimeError, TypeError, ValueError):
        return
    missing = whole - view.analytical
    words: dict[str, Scalar] = {"place": watching.places[0]}
    yield Prediction(pattern="detached_at", expected=view.numerical - missing, parameters=words)


def _unit(view: View, row: int) -> Tensor:
    unit = torch.zeros_like(view.y)
    unit[row] = 1
    return unit


def _gradient(linear: Linearization, view: View, cotangent: Tensor) -> Tensor:
    """The flat gradient for the view's input, for a flat cotangent of its output."""
    cotangents = [torch.zeros_like(each) for each in linear.outputs]
    own = linear.outputs[view.output]
    cotangents[view.output] = cotangent.view(own.shape).to(own)
    gradient = linear.vjp(cotangents)[view.input]
    return torch.zeros_like(view.x) if gradient is None else flat(gradient)


class _Attached(TorchFunctionMode):
    """Makes detaching do nothing, and remembers where it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _DETACHING and args and isinstance(args[0], Tensor):
            self.places.append(_place())
            return args[0].view_as(args[0])
        if not torch.is_grad_enabled():
            self.places.append(_place())
            with torch.enable_grad():
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _place() -> str:
    """The innermost line outside torch and gradbot, as file:line."""
    frame = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(("torch.", "gradbot.engine")):
            return f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "?"
