"""What this machine has: cores and memory, as far as this process may use them."""

from __future__ import annotations

import os
from pathlib import Path

GIB = 1 << 30


def cores() -> int:
    """How many cores this process may use: its affinity, and the quota of its control group."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _first_line("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        count = min(count, max(1, int(quota[0]) // int(quota[1])))
    return max(1, count)


def memory_bytes() -> int:
    """How much memory there is for this process: the machine's, or less where its control group says so."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        total = 8 * GIB
    limit = _first_line("/sys/fs/cgroup/memory.max")
    return min(total, int(limit)) if limit.isdigit() else total


def default_memory_limit(workers: int) -> int:
    """The memory limit of one of `workers` workers, in bytes: nine tenths of the machine shared, at least 2 GiB."""
    return max(2 * GIB, memory_bytes() * 9 // 10 // max(1, workers))


def resident_bytes(pid: int) -> int:
    """The resident memory of a process, in bytes; 0 where it cannot be read."""
    fields = _first_line(f"/proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def bytes_text(count: int) -> str:
    """A number of bytes for people: `512 MiB`, `4.0 GiB`."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / (1 << 20):.0f} MiB"


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").partition("\n")[0]
    except OSError:
        return ""
