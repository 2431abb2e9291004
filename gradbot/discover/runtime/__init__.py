"""What importing really registers. Runs user code and needs torch: for worker processes only."""

from __future__ import annotations

from gradbot.discover.runtime.imports import ImportFailedError, import_source, one_line
from gradbot.discover.runtime.ops import op_names
from gradbot.discover.runtime.registered import discover, registered_targets

__all__ = ["ImportFailedError", "discover", "import_source", "one_line", "op_names", "registered_targets"]
