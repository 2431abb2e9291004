"""Writes small projects and scans, imports and collects them as gradbot does."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

from gradbot.discover.static import scan
from gradbot.model import Discovery, Target

TORCH = "import torch\nfrom torch.autograd import Function\n"

BODY = """
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output
"""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files (path -> text, dedented) and return the folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def scanned(folder: Path, files: Mapping[str, str], *names: str) -> Discovery:
    """Write a project and scan it."""
    return scan(names or (".",), root=write(folder, files))


def target(found: Discovery, target_id: str) -> Target:
    """The one target of this id."""
    (only,) = [each for each in found.targets if each.id == target_id]
    return only


def ids(found: Discovery) -> set[str]:
    """The ids of all targets."""
    return {each.id for each in found.targets}
