"""gradbot: checks the gradients of custom PyTorch functions and ops.

The names below are resolved on first use, so that importing `gradbot` does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gradbot.version import __version__

if TYPE_CHECKING:
    from gradbot.engine.api import check
    from gradbot.engine.compat import (
        GradcheckError,
        get_analytical_jacobian,
        get_numerical_jacobian,
        get_numerical_jacobian_wrt_specific_input,
        gradcheck,
        gradgradcheck,
    )
    from gradbot.inputs.declared import Sample, cases
    from gradbot.inputs.opinfo import from_opinfo

__all__ = [
    "GradcheckError",
    "Sample",
    "__version__",
    "cases",
    "check",
    "from_opinfo",
    "get_analytical_jacobian",
    "get_numerical_jacobian",
    "get_numerical_jacobian_wrt_specific_input",
    "gradcheck",
    "gradgradcheck",
]

_HOMES = {
    "GradcheckError": "gradbot.engine.compat",
    "get_analytical_jacobian": "gradbot.engine.compat",
    "get_numerical_jacobian": "gradbot.engine.compat",
    "get_numerical_jacobian_wrt_specific_input": "gradbot.engine.compat",
    "gradcheck": "gradbot.engine.compat",
    "gradgradcheck": "gradbot.engine.compat",
    "check": "gradbot.engine.api",
    "Sample": "gradbot.inputs.declared",
    "cases": "gradbot.inputs.declared",
    "from_opinfo": "gradbot.inputs.opinfo",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'gradbot' has no attribute {name!r}; it has {', '.join(sorted(__all__))}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
