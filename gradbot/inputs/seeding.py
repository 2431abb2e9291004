"""Random numbers of samples: the same whenever they are made, and nobody else's are touched."""

from __future__ import annotations

import contextlib
import hashlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import torch


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Python's, NumPy's and torch's generators seeded, and as they were afterwards."""
    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    try:
        with torch.random.fork_rng(devices=_devices_in_use()):
            torch.manual_seed(seed)
            random.seed(seed)
            if numpy is not None:
                numpy.random.seed(seed)
            yield
    finally:
        random.setstate(python_state)
        if numpy is not None and numpy_state is not None:
            numpy.random.set_state(numpy_state)


def _devices_in_use() -> list[int]:
    """The CUDA devices whose generators may be in use; none before CUDA is started, which looking must not do."""
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return list(range(torch.cuda.device_count())) if started else []


def seed_of(seed: int, file: str, name: str) -> int:
    """The seed of a generator, from a case's seed, the name of its file (not its folder: that differs between
    machines) and its own name."""
    digest = hashlib.sha256(f"{seed}:{Path(file).name}:{name}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
