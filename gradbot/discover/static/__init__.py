"""What sources say about custom gradients: Functions, ops, declared cases. No user code runs; torch is not needed."""

from __future__ import annotations

from gradbot.discover.static.scan import scan

__all__ = ["scan"]
