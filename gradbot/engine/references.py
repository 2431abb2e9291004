"""What a user declares beside a function: callables that say what its gradient should be, or where it is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Callables that a sample or the configuration declares; each takes what its line says.

    `reference`: the function's arguments; plain PyTorch whose values and gradients are right.
    `surrogate_of`: the function's arguments; the stand-in whose gradient the backward is meant to be.
    `projection`: the checked tensors; returns them on the set where the function is defined (symmetric, on a simplex).
    `invariant`: the function's outputs; returns what does not depend on an arbitrary choice (a sign, a basis).
    """

    reference: Callable[..., Any] | None = None
    surrogate_of: Callable[..., Any] | None = None
    projection: Callable[..., Any] | None = None
    invariant: Callable[..., Any] | None = None

    @property
    def compared(self) -> bool:
        """Whether there is anything to compare gradients with."""
        return self.reference is not None or self.surrogate_of is not None
