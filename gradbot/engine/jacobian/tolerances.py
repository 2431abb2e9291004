"""What is allowed between two Jacobians, entry by entry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradbot.engine.jacobian.point import Array
from gradbot.model import CheckSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """|A - N| <= atol + rtol |N|; `eps` is the first step."""

    eps: float
    atol: float
    rtol: float

    def allowed(self, numerical: Array) -> Array:
        """The allowed error of each entry. Where the numerical one is not finite only `atol` counts."""
        allowed = np.abs(numerical)
        allowed *= self.rtol
        allowed += self.atol
        finite = np.isfinite(allowed)
        return allowed if finite.all() else np.where(finite, allowed, self.atol)


_DEFAULTS = {
    2.0**-53: Tolerances(eps=1e-6, atol=1e-5, rtol=1e-3),
    2.0**-24: Tolerances(eps=2.0**-8, atol=1e-3, rtol=1e-2),
    2.0**-11: Tolerances(eps=2.0**-4, atol=2e-2, rtol=5e-2),
    2.0**-8: Tolerances(eps=2.0**-3, atol=1e-1, rtol=1e-1),
}


def tolerances_of(settings: CheckSettings, unit_roundoff: float) -> Tolerances:
    """The settings' tolerances; what is None is chosen by the unit roundoff of the coarsest dtype involved."""
    default = _DEFAULTS[unit_roundoff]
    return Tolerances(
        eps=default.eps if settings.eps is None else settings.eps,
        atol=default.atol if settings.atol is None else settings.atol,
        rtol=default.rtol if settings.rtol is None else settings.rtol,
    )
