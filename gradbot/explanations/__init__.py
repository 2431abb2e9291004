"""What every rule means, what usually causes it, and the remedy: for `gradbot explain` and docs/rules."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gradbot.explanations.behaviour import BEHAVIOUR
from gradbot.explanations.contracts import CONTRACTS
from gradbot.explanations.derivatives import DERIVATIVES
from gradbot.explanations.page import Explanation, page
from gradbot.explanations.usage import USAGE

EXPLANATIONS: Mapping[str, Explanation] = MappingProxyType({**DERIVATIVES, **BEHAVIOUR, **CONTRACTS, **USAGE})
"""Every rule's explanation by kind."""

__all__ = ["EXPLANATIONS", "Explanation", "page"]
