"""Which kinds of workers a run has: how many on the CPU, one for each accelerator, each bound to its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gradbot.model import Discovery
from gradbot.run.pool import Lane
from gradbot.run.protocol import Message

_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}
_IMPORTS_TRITON = re.compile(rb"^\s*(?:import|from)\s+triton\b", re.MULTILINE)


def cpu_lane(jobs: int, *, interpret_triton: bool) -> Lane:
    """The workers on the CPU."""
    env = {"TRITON_INTERPRET": "1"} if interpret_triton else {}
    return Lane(name="cpu", device="cpu", slots=jobs, env=env)


def lanes_for(devices: Iterable[str], there: Message, cpu: Lane, environ: Mapping[str, str]) -> tuple[Lane, ...]:
    """The lanes for the devices that cases ask for. `there` is what a worker said of this machine's devices.

    Of a kind such as `cuda` each accelerator gets one worker that sees it alone; a case for `cuda:1` gets a worker
    that sees all, so that the number keeps its meaning.
    """
    counts = there.get("devices", {})
    lanes = []
    for device in sorted(set(devices)):
        kind, _, index = device.partition(":")
        if kind == "cpu":
            lanes.append(cpu if device == "cpu" else Lane(name=device, device=device, slots=cpu.slots, env=cpu.env))
        elif index or kind not in _VISIBLE:
            lanes.append(Lane(name=device, device=device))
        else:
            lanes += _one_each(kind, counts.get(kind, 0), environ)
    return tuple(lanes)


def presence(there: Message) -> dict[str, str]:
    """Devices by name: "" where they are there, else the reason."""
    counts, reasons = there.get("devices", {}), there.get("reasons", {})
    found = {kind: "" if count else reasons.get(kind, "torch sees none") for kind, count in counts.items()}
    for kind, count in counts.items():
        found.update({f"{kind}:{index}": "" for index in range(count)})
    return found


def uses_triton(discovery: Discovery, root: Path) -> bool:
    """Whether the sources that are checked import Triton."""
    if any(target.triton for target in discovery.targets):
        return True
    return any(_imports_triton(root / module.path) for module in discovery.modules)


def _one_each(kind: str, count: int, environ: Mapping[str, str]) -> Sequence[Lane]:
    variable = _VISIBLE[kind]
    names = [each.strip() for each in environ.get(variable, "").split(",") if each.strip()]
    names = names if len(names) >= count else [str(index) for index in range(count)]
    return [Lane(name=f"{kind}:{index}", device=kind, env={variable: names[index]}) for index in range(count)]


def _imports_triton(path: Path) -> bool:
    try:
        return bool(_IMPORTS_TRITON.search(path.read_bytes()))
    except OSError:
        return False
