"""A tensor as text: small ones by value, large plain floats as a distribution with a seed, all others exactly.

A float tensor is replaced by random values only where nothing about it looks meant: no zeros, few repeated values, no
order, no symmetry, no rows that sum to one. Such values are drawn between the observed quantiles, so that they never
leave the range that the function was called with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Json = Any

INLINE_ELEMENTS = 64
QUANTILES = 9
WIDEST_ROW = 16  # of rows up to this length, parts are looked at too
_SAMPLED = 4096  # values of a large tensor that are looked at for repeats

_DIGITS = {torch.float64: 17, torch.float32: 9, torch.float16: 5, torch.bfloat16: 4}
_EXACT_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, slots=True)
class Attached:
    """Tensors too large to stand in the text, by the hash of their content."""

    tensors: dict[str, Tensor] = field(default_factory=dict)

    def add(self, tensor: Tensor) -> str:
        """Keep a tensor and return its name."""
        plain = tensor.detach().cpu().contiguous()
        if plain.is_complex():  # files of tensors know pairs of real numbers only
            plain = torch.view_as_real(plain)
        raw = plain.view(torch.uint8) if plain.dim() else plain.reshape(1).view(torch.uint8)
        head = f"{plain.dtype}{tuple(plain.shape)}".encode()
        name = hashlib.sha256(head + bytes(raw.flatten().numpy())).hexdigest()[:32]
        self.tensors[name] = plain.clone()
        return name


class NotPortableError(ValueError):
    """A value that cannot be written as text and read back. The message says which and why."""


def encode_tensor(tensor: Tensor, attached: Attached, seed: int) -> Json:
    """A tensor as JSON. Raises `NotPortableError` for tensor subclasses and layouts that cannot be written."""
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        raise NotPortableError(f"a tensor subclass, {type(tensor).__qualname__}")
    if tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta":
        raise NotPortableError("a quantized, nested or meta tensor")
    result: dict[str, Json] = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
    if tensor.requires_grad:
        result["requires_grad"] = True
    if isinstance(tensor, torch.nn.Parameter):
        result["parameter"] = True
    plain = tensor.detach()
    if plain.layout != torch.strided:
        return result | _encode_sparse(plain, attached, seed)
    order = _dim_order(plain)
    if order is not None:
        result["dim_order"] = order
    return result | _encode_values(plain.resolve_conj().resolve_neg(), attached, seed)


def _encode_sparse(tensor: Tensor, attached: Attached, seed: int) -> dict[str, Json]:
    layout = str(tensor.layout).removeprefix("torch.")
    parts: dict[str, Tensor]
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        parts = {"indices": tensor.indices(), "values": tensor.values()}
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = {"crow": tensor.crow_indices(), "col": tensor.col_indices(), "values": tensor.values()}
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = {"ccol": tensor.ccol_indices(), "row": tensor.row_indices(), "values": tensor.values()}
    else:
        raise NotPortableError(f"a tensor of layout {layout}")
    return {"layout": layout, "parts": {name: encode_tensor(part, attached, seed) for name, part in parts.items()}}


def _dim_order(tensor: Tensor) -> list[int] | None:
    """The order of dims in memory of a permuted dense tensor; None where it is contiguous, or not dense at all."""
    if tensor.is_contiguous() or tensor.numel() < 2:
        return None
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim))
    return order if tensor.permute(order).is_contiguous() else None


def _encode_values(tensor: Tensor, attached: Attached, seed: int) -> dict[str, Json]:
    if tensor.numel() <= INLINE_ELEMENTS:
        return {"values": _as_list(tensor)}
    if tensor.dtype in _DIGITS and looks_random(tensor):
        return {"random": {"quantiles": _quantiles(tensor), "seed": seed}}
    return {"file": attached.add(tensor)}


def _as_list(tensor: Tensor) -> list[Json]:
    flat = tensor.detach().cpu().reshape(-1)
    if tensor.is_complex():
        return [[_number(part, torch.float64) for part in pair] for pair in torch.view_as_real(flat).double().tolist()]
    if tensor.dtype in _DIGITS:
        return [_number(value, tensor.dtype) for value in flat.double().tolist()]
    return list(flat.tolist())


def _number(value: float, dtype: torch.dtype) -> float | str:
    """The shortest text that gives the same value back in `dtype`; NaN and infinities as strings."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    return float(f"{value:.{_DIGITS[dtype]}g}")


def _quantiles(tensor: Tensor) -> list[float]:
    ordered = tensor.detach().cpu().double().reshape(-1).sort().values
    places = torch.linspace(0, len(ordered) - 1, QUANTILES).round().long()
    return [float(f"{value:.4g}") for value in ordered[places].tolist()]


def is_degenerate(tensor: Tensor) -> bool:
    """Whether a tensor sits on a special point: most of its values repeat each other, or all are zero.

    Tests use such inputs on purpose, for ties, empty rows or equal eigenvalues; a derivative may not exist there.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
        return False
    values = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    flat = values.reshape(-1)
    if not bool(flat.any()):
        return True
    flat = flat[:: max(1, flat.numel() // _SAMPLED)].cpu()
    return flat.numel() > 3 and len(set(flat.tolist())) < 0.5 * flat.numel()


def looks_random(tensor: Tensor) -> bool:
    """Whether nothing about the values of a real float tensor looks meant."""
    values = tensor.detach().cpu().double()
    if not bool(values.isfinite().all()) or bool((values == 0).any()):
        return False
    some = values.reshape(-1)[:: max(1, values.numel() // _SAMPLED)]
    if bool((values == values.round()).all()) or len(set(some.tolist())) < 0.9 * some.numel():
        return False
    return not any(meant(values) for meant in _STRUCTURES)


def _is_ordered(values: Tensor) -> bool:
    def ordered(dim: int) -> bool:
        steps = values.diff(dim=dim)
        return steps.numel() > 0 and bool((steps >= 0).all() | (steps <= 0).all())

    return any(ordered(dim) for dim in range(values.dim()) if values.shape[dim] > 2)


def _has_constant_norm(values: Tensor) -> bool:
    """Slices that sum to the same number, or have the same norm, or the same logsumexp."""

    def constant(reduced: Tensor) -> bool:
        return bool((reduced - reduced.mean()).abs().max() <= 1e-4 * (1e-12 + reduced.abs().max()))

    for dim in range(values.dim()):
        if values.shape[dim] < 2:
            continue
        sums, norms, logs = values.sum(dim), values.square().sum(dim), values.logsumexp(dim)
        unit = values.numel() == values.shape[dim]
        if unit:
            if any(abs(float(each) - target) < 1e-4 for each, target in ((sums, 1), (norms, 1), (logs, 0))):
                return True
        elif constant(sums) or constant(norms) or bool(logs.abs().max() < 1e-4):
            return True
    return False


def _has_constant_part(values: Tensor) -> bool:
    """Some neighbouring columns have the same norm in every row: a pose holds a place and a unit quaternion."""
    width = values.shape[-1] if values.dim() else 0
    if not 3 <= width <= WIDEST_ROW or values.numel() < 4 * width:
        return False
    sums = values.reshape(-1, width).square().cumsum(1)
    sums = torch.cat([torch.zeros(len(sums), 1, dtype=sums.dtype), sums], 1)
    parts = ((sums[:, end] - sums[:, start]) for start in range(width - 1) for end in range(start + 2, width + 1))
    return any(bool((part - part.mean()).abs().max() <= 1e-4 * part.abs().max()) for part in parts)


def _is_special_matrix(values: Tensor) -> bool:
    if values.dim() < 2 or values.shape[-1] != values.shape[-2] or values.shape[-1] < 2:
        return False
    scale = 1e-5 * values.abs().max()
    mirrored = values.mT
    identity = torch.eye(values.shape[-1], dtype=values.dtype)
    symmetric = bool((values - mirrored).abs().max() <= scale) or bool((values + mirrored).abs().max() <= scale)
    return symmetric or bool((values @ mirrored - identity).abs().max() < 1e-3)


_STRUCTURES: tuple[Callable[[Tensor], bool], ...] = (
    _is_ordered,
    _has_constant_norm,
    _has_constant_part,
    _is_special_matrix,
)


def decode_tensor(raw: Mapping[str, Json], load: Callable[[str], Tensor]) -> Tensor:
    """A tensor from its JSON; `load` gives attached tensors by name. Inverse of `encode_tensor` for exact values."""
    dtype = getattr(torch, str(raw["dtype"]))
    shape = [int(size) for size in raw["shape"]]
    if "parts" in raw:
        tensor = _decode_sparse(raw, load)
    else:
        tensor = _decode_values(raw, dtype, shape, load).reshape(shape)
    if "dim_order" in raw:
        order = [int(dim) for dim in raw["dim_order"]]
        inverse = [order.index(dim) for dim in range(len(order))]
        tensor = tensor.permute(order).contiguous().permute(inverse)
    if raw.get("parameter"):
        return torch.nn.Parameter(tensor, requires_grad=bool(raw.get("requires_grad")))
    return tensor.requires_grad_(bool(raw.get("requires_grad")))


def _decode_values(
    raw: Mapping[str, Json], dtype: torch.dtype, shape: list[int], load: Callable[[str], Tensor]
) -> Tensor:
    if "file" in raw:
        loaded = load(str(raw["file"])).clone()  # in a file, numbers need not lie where the processor wants them
        return (torch.view_as_complex(loaded) if dtype.is_complex else loaded).to(dtype)
    if "random" in raw:
        return _drawn(raw["random"], shape).to(dtype)
    values = raw["values"]
    if dtype.is_complex:
        pairs = [[float(part) for part in pair] for pair in values]
        return torch.view_as_complex(torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2)).to(dtype)
    if dtype in _EXACT_INTEGERS or dtype == torch.bool:
        return torch.tensor(values, dtype=dtype)
    return torch.tensor([float(value) for value in values], dtype=torch.float64).to(dtype)


def _drawn(raw: Mapping[str, Json], shape: list[int]) -> Tensor:
    """Values drawn between quantiles by inverse transform, the same for the same seed on every machine."""
    quantiles = torch.tensor([float(value) for value in raw["quantiles"]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(int(raw["seed"]))
    places = torch.rand(shape, generator=generator, dtype=torch.float64) * (len(quantiles) - 1)
    below = places.floor().long().clamp(max=len(quantiles) - 2)
    return quantiles[below] + (places - below) * (quantiles[below + 1] - quantiles[below])


def _decode_sparse(raw: Mapping[str, Json], load: Callable[[str], Tensor]) -> Tensor:
    parts = {name: decode_tensor(part, load) for name, part in raw["parts"].items()}
    shape = [int(size) for size in raw["shape"]]
    layout = str(raw["layout"])
    if layout == "sparse_coo":
        # what was coalesced when it was written is coalesced now
        return torch.sparse_coo_tensor(
            parts["indices"], parts["values"], shape, check_invariants=True, is_coalesced=True
        )
    compressed, plain = ("crow", "col") if layout in ("sparse_csr", "sparse_bsr") else ("ccol", "row")
    return torch.sparse_compressed_tensor(
        parts[compressed], parts[plain], parts["values"], shape, layout=getattr(torch, layout), check_invariants=True
    )
