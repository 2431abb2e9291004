"""`python -m gradbot.record.collect SPOOL FOLDER`: joins what the processes of a run have seen into the recordings.

Runs in the user's Python, because exact tensors need torch; prints a summary as JSON for the command line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from gradbot.errors import GradbotError
from gradbot.record.store import Limits, Summary, read_spool, update


def collect(spool: Path, folder: Path, *, limits: Limits, prune: bool) -> Summary:
    """Join the spool of a run into `folder`."""
    entries = read_spool(spool)
    folders = sorted({Path(str(entry["folder"])) for entry in entries})
    return update(folder, entries, limits=limits, prune=prune, tensor_folders=folders)


def main() -> int:
    """Parse arguments, collect, print the summary."""
    parser = argparse.ArgumentParser(prog="gradbot.record.collect")
    parser.add_argument("spool", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--per-target", type=int, default=Limits().per_target)
    parser.add_argument("--prune", action="store_true")
    arguments = parser.parse_args()
    try:
        limits = Limits(per_target=arguments.per_target)
        summary = collect(arguments.spool, arguments.folder, limits=limits, prune=arguments.prune)
    except GradbotError as error:
        print(json.dumps({"error": str(error), "exit_code": int(error.exit_code)}))
        return 0
    print(json.dumps(dataclasses.asdict(summary)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
