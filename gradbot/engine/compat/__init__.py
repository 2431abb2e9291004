"""`gradcheck` and `gradgradcheck` for suites that used torch's: the same keywords, exceptions and warnings.

They agree with torch wherever it is right. Where torch's verdict depends on luck or goes against its documentation,
these give the one that mathematics does; `tests/conformance` holds the list.
"""

from gradbot.engine.compat.checks import gradcheck, gradgradcheck
from gradbot.engine.compat.failures import GradcheckError
from gradbot.engine.compat.getters import (
    get_analytical_jacobian,
    get_numerical_jacobian,
    get_numerical_jacobian_wrt_specific_input,
)

__all__ = [
    "GradcheckError",
    "get_analytical_jacobian",
    "get_numerical_jacobian",
    "get_numerical_jacobian_wrt_specific_input",
    "gradcheck",
    "gradgradcheck",
]
