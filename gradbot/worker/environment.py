"""Where a worker runs: device, driver, versions, and the flags that numbers depend on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

from gradbot.model import Environment

_VARIABLES = ("CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE")


def devices() -> tuple[dict[str, int], dict[str, str]]:
    """How many devices of each kind there are, and the reason for each kind of which there is none."""
    counts = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "xpu": torch.xpu.device_count() if hasattr(torch, "xpu") and torch.xpu.is_available() else 0,
    }
    built = {
        "cuda": torch.version.cuda is not None or torch.version.hip is not None,
        "mps": torch.backends.mps.is_built(),
        "xpu": getattr(torch.version, "xpu", None) is not None,
    }
    reasons = {
        kind: f"torch {torch.__version__} sees no {kind} device"
        if there
        else f"torch {torch.__version__} is built without {kind}"
        for kind, there in built.items()
        if not counts[kind]
    }
    return counts, reasons


def describe(device: str) -> Environment:
    """This process's environment, for checks on `device`; the supervisor gives it its name."""
    kind = device.partition(":")[0]
    return Environment(
        name=device,
        device=kind,
        device_name=_device_name(device),
        driver=_driver() if kind == "cuda" else "",
        python=platform.python_version(),
        platform=platform.platform(),
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
        flags=_flags(),
    )


def _device_name(device: str) -> str:
    kind = device.partition(":")[0]
    if kind == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    if kind == "xpu" and torch.xpu.is_available():
        return str(torch.xpu.get_device_name(device))
    return _cpu_name()


def _flags() -> dict[str, str]:
    cudnn = torch.backends.cudnn
    flags = {
        "threads": str(torch.get_num_threads()),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()).lower(),
        "cuda_matmul_tf32": str(torch.backends.cuda.matmul.allow_tf32).lower(),
        "cudnn_tf32": str(cudnn.allow_tf32).lower(),
        "cudnn_enabled": str(cudnn.enabled).lower(),
        "cudnn_benchmark": str(cudnn.benchmark).lower(),
        "cudnn_deterministic": str(cudnn.deterministic).lower(),
    }
    if torch.cuda.is_available() and torch.backends.cudnn.enabled:
        flags["cudnn_version"] = str(cudnn.version())  # type: ignore[no-untyped-call]
    return flags | {name: value for name in _VARIABLES if (value := os.environ.get(name))}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _driver() -> str:
    try:
        return Path("/sys/module/nvidia/version").read_text("ascii").strip()
    except OSError:
        return ""
