"""How often to repeat a computation to see rare differences, and which torch ops are documented to differ.

A race that shows in one of twenty calls is missed by eight repeats two times in three. How many are enough follows from
the rate that is to be seen; how many are made follows from the time that they may take as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

RATE, CONFIDENCE = 0.05, 0.95
"""Differences in one of twenty calls are to be seen nineteen times out of twenty."""

DOCUMENTED: tuple[str, ...] = (
    "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d_backward",
    "_cdist_backward",
    "_ctc_loss_backward",
    "_embedding_bag_dense_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention_backward",
    "adaptive_max_pool2d_backward",
    "avg_pool3d_backward",
    "bincount",
    "cumsum",
    "embedding_backward",
    "embedding_dense_backward",
    "fractional_max_pool2d_backward",
    "fractional_max_pool3d_backward",
    "grid_sampler_2d_backward",
    "grid_sampler_3d_backward",
    "histc",
    "index_add",
    "index_copy",
    "index_put",
    "kthvalue",
    "max_pool3d_with_indices_backward",
    "max_unpool2d",
    "max_unpool3d",
    "median",
    "nll_loss2d_backward",
    "put",
    "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "reflection_pad3d_backward",
    "replication_pad1d_backward",
    "replication_pad2d_backward",
    "replication_pad3d_backward",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "upsample_bicubic2d_backward",
    "upsample_bilinear2d_backward",
    "upsample_linear1d_backward",
    "upsample_trilinear3d_backward",
)
"""Ops that `torch.use_deterministic_algorithms` documents as nondeterministic on CUDA, by their ATen names."""


def enough(rate: float = RATE, confidence: float = CONFIDENCE) -> int:
    """How many independent repeats show at least one difference with `confidence`, where each differs at `rate`."""
    return math.ceil(math.log(1 - confidence) / math.log(1 - rate))


def planned(seconds: float, call_seconds: float, at_least: int) -> int:
    """As many repeats as are enough and `at_least`, as far as they fit into `seconds`; never fewer than two."""
    affordable = enough() if call_seconds <= 0 else int(seconds / call_seconds)
    return max(2, min(max(enough(), at_least), affordable))


def documented_op(compute: Callable[[], Any]) -> str:
    """The first op that `compute()` runs and that is documented as nondeterministic, as "aten::name"; else ""."""
    recorder = _Recorder()
    with recorder:
        compute()
    return recorder.found


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every op below autograd."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split("::")[-1].split(".")[0].removesuffix("_")
        if not self.found and func.namespace == "aten" and name in DOCUMENTED:
            self.found = f"aten::{name}"
        return func(*args, **(kwargs or {}))


def nondeterministic_here(device: torch.device) -> bool:
    """Whether documented ops differ on this device at all: the documentation speaks of CUDA."""
    return device.type == "cuda"
