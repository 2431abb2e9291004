"""Arguments written as text come back as they were; what cannot be written says why."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
import types
from collections import namedtuple
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from gradbot.record.tensors import (
    INLINE_ELEMENTS,
    Attached,
    NotPortableError,
    decode_tensor,
    encode_tensor,
    is_degenerate,
    looks_random,
)
from gradbot.record.values import decode_value, encode_value, reference_of, seeds

Pair = namedtuple("Pair", "left right")


class Side(enum.Enum):
    LEFT = "l"


@dataclasses.dataclass
class Box:
    tensor: Tensor
    name: str


def there_and_back(value: Any) -> Any:
    attached = Attached()
    text = json.dumps(encode_value(value, attached, seeds("test")))
    return decode_value(json.loads(text), attached.tensors.__getitem__)


def same(left: Tensor, right: Tensor) -> bool:
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.requires_grad == right.requires_grad
        and torch.equal(left.detach().nan_to_num(7.25), right.detach().nan_to_num(7.25))
    )


FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@given(st.lists(st.floats(width=32), max_size=INLINE_ELEMENTS), st.sampled_from(FLOATS), st.booleans())
def test_small_float_tensors_are_exact(values: list[float], dtype: torch.dtype, requires_grad: bool) -> None:
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype).requires_grad_(requires_grad)
    assert same(there_and_back(tensor), tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randint(0, 9, (40, 5)),
        torch.rand(9, 30) > 0.5,
        torch.eye(12),
        torch.randn(5, 4, dtype=torch.complex128, requires_grad=True),
        torch.randn(70, dtype=torch.complex64),
        torch.tensor(3.5),
        torch.zeros(0, 3, requires_grad=True),
        torch.linspace(0, 1, 200),
        torch.softmax(torch.randn(20, 10), -1),
        torch.randn(30, 30) * (torch.rand(30, 30) > 0.5),
    ],
    ids=lambda t: f"{str(t.dtype)[6:]}-{'x'.join(map(str, t.shape))}",
)
def test_tensors_that_look_meant_are_exact(tensor: Tensor) -> None:
    assert same(there_and_back(tensor), tensor)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_sparse_tensors_keep_their_layout(layout: torch.layout) -> None:
    tensor = (torch.randn(4, 5).double() * torch.eye(4, 5)).to_sparse(layout=layout).requires_grad_()
    back = there_and_back(tensor)
    assert back.layout == layout
    assert back.requires_grad
    assert torch.equal(back.to_dense(), tensor.to_dense())


def test_a_permuted_tensor_keeps_its_order_in_memory() -> None:
    tensor = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert there_and_back(tensor).stride() == tensor.stride()


def test_a_large_random_tensor_becomes_a_distribution_within_its_range() -> None:
    tensor = torch.rand(50, 20) + 3.0
    attached = Attached()
    raw = encode_tensor(tensor, attached, seed=5)
    drawn = decode_tensor(raw, attached.tensors.__getitem__)
    assert set(raw) == {"dtype", "shape", "random"}
    assert not attached.tensors
    assert drawn.shape == tensor.shape
    assert float(drawn.min()) >= 2.999
    assert float(drawn.max()) <= 4.001
    assert torch.equal(drawn, decode_tensor(raw, attached.tensors.__getitem__))


SYMMETRIC = torch.randn(12, 12).double()
MEANT = {
    "zeros": torch.randn(100) * (torch.arange(100) != 7),
    "whole numbers": torch.randint(1, 10**6, (100,)).double(),
    "few values": torch.randn(10).repeat(10),
    "ordered": torch.randn(100).sort().values,
    "symmetric": SYMMETRIC + SYMMETRIC.T,
    "orthogonal": torch.linalg.qr(SYMMETRIC).Q,
    "simplex": torch.softmax(torch.randn(20, 10).double(), 0),
    "log-probabilities": torch.log_softmax(torch.randn(20, 10).double(), -1),
    "unit vectors": torch.nn.functional.normalize(torch.randn(20, 10).double(), dim=-1),
    "poses": torch.cat([torch.randn(20, 3), torch.nn.functional.normalize(torch.randn(20, 4), dim=-1)], -1).double(),
    "infinite": torch.tensor([float("inf"), *torch.randn(99).tolist()]),
}


@pytest.mark.parametrize("name", MEANT)
def test_structure_is_seen(name: str) -> None:
    assert not looks_random(MEANT[name])


def test_plain_noise_looks_random() -> None:
    assert looks_random(torch.randn(30, 30))
    assert looks_random(torch.rand(100) + 1)


@pytest.mark.parametrize(
    ("tensor", "degenerate"),
    [
        (torch.zeros(()), True),
        (torch.ones(2), False),
        (torch.ones(4, 4), True),
        (torch.eye(3), True),
        (torch.linspace(-4, 6, 50).relu(), False),
        (torch.randn(3, 3, dtype=torch.complex128), False),
        (torch.eye(3).to_sparse(), True),
        (torch.zeros(4, dtype=torch.long), False),
        (torch.zeros(0), False),
    ],
)
def test_degenerate_tensors_are_seen(tensor: Tensor, degenerate: bool) -> None:
    assert is_degenerate(tensor) is degenerate


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(PLAIN)
def test_plain_values_and_containers_come_back(value: Any) -> None:
    back = there_and_back(value)
    assert back == value
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        torch.float16,
        torch.device("cpu"),
        torch.channels_last,
        torch.strided,
        slice(1, None, 2),
        range(1, 9, 2),
        (..., slice(2, 5)),
        Side.LEFT,
        torch.relu,
        len,
    ],
    ids=["dtype", "device", "memory format", "layout", "slice", "range", "index", "enum", "op", "builtin"],
)
def test_constants_and_importable_objects_are_kept_by_reference(value: Any) -> None:
    assert there_and_back(value) == value


def test_named_tuples_and_dataclasses_come_back_as_themselves() -> None:
    assert there_and_back(Pair(1, (2, 3))) == Pair(1, (2, 3))
    box = there_and_back(Box(torch.ones(2), "a"))
    assert isinstance(box, Box)
    assert box.name == "a"
    assert torch.equal(box.tensor, torch.ones(2))


def test_a_class_that_bears_the_module_of_its_factory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    factory, user = types.ModuleType("made_here.factory"), types.ModuleType("made_here.user")
    made = type("Parameters", (), {"__module__": "made_here.factory"})
    user.Parameters = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_here.factory", factory)
    monkeypatch.setitem(sys.modules, "made_here.user", user)
    assert reference_of(made) == "made_here.user:Parameters"


class Subclass(Tensor):
    pass


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (lambda x: x, "<lambda>"),
        (torch.nn.Linear(2, 2), "Linear"),
        (object(), "object"),
        (torch.ones(2).as_subclass(Subclass), "subclass"),
        ([torch.ones(2, device="meta")], "meta"),
    ],
    ids=["lambda", "module", "object", "subclass", "meta"],
)
def test_what_cannot_be_written_says_why(value: Any, why: str) -> None:
    with pytest.raises(NotPortableError, match=why):
        there_and_back(value)
