"""What holds for every test: no property has a deadline of its own, for how fast a machine is says nothing."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
