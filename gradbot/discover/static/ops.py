"""Ops as the sources register them: what one statement says, and all of them put together as targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradbot.model import Location, Offers, Target, TargetKind

_TORCH_NAMESPACES = (
    "_native debug_mode_ops flex_lib inductor_prims onnx onnx_symbolic quantization "
    "_c10d_functional _c10d_functional_autograd _dtensor _inductor_test _quantized _test aten c10d c10d_functional "
    "debugprims dynamo export fsdp fsgm higher_order inductor mkl mkldnn mkldnn_prepacked onednn prepacked prim "
    "prims profiler quantized quantized_decomposed rngprims rpc sparse static_runtime streams symm_mem torch_attn "
    "triton_kernels vulkan_prepack xnnpack"
)
TORCH_NAMESPACES = frozenset(_TORCH_NAMESPACES.split())
"""Namespaces that torch registers ops in itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One statement about an op: `part` is define, impl, autograd, fake or vmap; `key` a dispatch key."""

    op: str
    part: str
    location: Location
    module: str
    key: str = ""
    schema: str = ""
    triton: bool = False


def op_id(name: str) -> str:
    """`ns::name.overload`, the overload left out where it is `default`."""
    return name.removesuffix(".default")


def op_targets(found: Iterable[Registration], package: str) -> Iterator[Target]:
    """One target for each op that the registrations define, or that they complete and that is not torch's own."""
    by_op: dict[str, list[Registration]] = {}
    for each in found:
        by_op.setdefault(each.op, []).append(each)
    for op, parts in by_op.items():
        if op.partition("::")[0] in TORCH_NAMESPACES and not any(each.part == "define" for each in parts):
            continue
        yield _target(op, parts, package)


def _target(op: str, parts: list[Registration], package: str) -> Target:
    differentiable = [each for each in parts if each.part == "autograd" or _is_autograd_key(each.key)]
    first = {each.part: each for each in reversed(parts) if each not in differentiable or each.part == "define"}
    home = first.get("define") or parts[0]
    methods = {part: each.location for part, each in first.items()}
    if differentiable:
        formulas = [each for each in differentiable if each.part == "autograd"]
        methods["autograd"] = (formulas or differentiable)[0].location
    return Target(
        id=op,
        kind=TargetKind.OP,
        package=package,
        module=home.module,
        qualname=op.partition("::")[2],
        location=home.location,
        methods={name: methods[name] for name in ("define", "impl", "autograd", "fake", "vmap") if name in methods},
        offers=Offers(
            backward=bool(differentiable),
            autograd_formula=bool(differentiable),
            fake_kernel="fake" in first or any(each.key in _FAKE_KEYS for each in parts),
            vmap="rule" if "vmap" in first or any(each.key == "FuncTorchBatched" for each in parts) else "none",
        ),
        schema=next((each.schema for each in parts if each.schema), ""),
        triton=any(each.triton for each in parts),
    )


_FAKE_KEYS = ("Meta", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


def _is_autograd_key(key: str) -> bool:
    return key.startswith("Autograd") or key == "CompositeImplicitAutograd"
