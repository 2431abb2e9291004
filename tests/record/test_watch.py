"""Every way in which a custom Function or op can be called is heard, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from gradbot.record.watch import _TORCH_NAMESPACES, watching


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float = 2.0) -> Tensor:
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return grad_output * ctx.scale, None


class WithOwnApply(torch.autograd.Function):
    @classmethod
    def apply(cls, *args: Any) -> Any:  # type: ignore[override]
        return super().apply(*args)

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return Double.apply(grad_output) / 2


@torch.library.custom_op("gradbot_watch_test::triple", mutates_args=())
def triple(x: Tensor) -> Tensor:
    return 3 * x


triple.register_autograd(lambda ctx, grad_output: 3 * grad_output)

EARLY = Double.apply


class Heard:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def function_called(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls.append(cls.__qualname__)

    def function_raised(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls.append(f"{cls.__qualname__} raised")

    def op_called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls.append(name)

    def op_raised(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls.append(f"{name} raised")


@pytest.fixture
def x() -> Tensor:
    return torch.arange(3.0, requires_grad=True)


def test_a_plain_call_is_heard(x: Tensor) -> None:
    heard = Heard()
    with watching(heard):
        assert torch.equal(Double.apply(x), 2 * x)
    assert heard.calls == ["Double"]


def test_a_reference_to_apply_taken_before_is_heard(x: Tensor) -> None:
    heard = Heard()
    with watching(heard):
        EARLY(x)
    assert heard.calls == ["Double"]


def test_an_overridden_apply_is_heard_once(x: Tensor) -> None:
    heard = Heard()
    with watching(heard):
        WithOwnApply.apply(x)
    assert heard.calls == ["WithOwnApply"]


def test_a_call_inside_a_backward_is_heard(x: Tensor) -> None:
    heard = Heard()
    with watching(heard):
        WithOwnApply.apply(x).sum().backward()
    assert heard.calls == ["WithOwnApply", "Double"]


def test_a_call_on_another_thread_is_heard(x: Tensor) -> None:
    heard = Heard()
    with watching(heard):
        thread = threading.Thread(target=lambda: Double.apply(x))
        thread.start()
        thread.join()
    assert heard.calls == ["Double"]


@pytest.mark.parametrize(
    "call",
    [
        triple,
        torch.ops.gradbot_watch_test.triple,
        torch.ops.gradbot_watch_test.triple.default,
    ],
    ids=["definition", "packet", "overload"],
)
def test_an_op_is_heard_once_however_it_is_called(call: Any, x: Tensor) -> None:
    heard = Heard()
    with watching(heard):
        assert torch.equal(call(x), 3 * x)
    assert {name.removesuffix(".default") for name in heard.calls} == {"gradbot_watch_test::triple"}
    assert len(heard.calls) == 1


def test_ops_of_torch_are_not_heard(x: Tensor) -> None:
    heard = Heard()
    with watching(heard):
        torch.ops.aten.sin.default(x)
        torch.ops.profiler._record_function_enter_new("name", None)
    assert heard.calls == []


def test_every_namespace_that_torch_alone_registers_is_known_as_its_own() -> None:
    script = "import torch; print(*{name.split('::')[0] for name in torch._C._dispatch_get_all_op_names()})"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert {f"{each}::" for each in done.stdout.split()} <= set(_TORCH_NAMESPACES)


def test_calls_under_a_functorch_transform_are_not_heard(x: Tensor) -> None:
    heard = Heard()
    with watching(heard):
        torch.func.vmap(lambda v: torch.ops.gradbot_watch_test.triple(v))(x.detach())
    assert heard.calls == []


def test_two_listeners_hear_the_same(x: Tensor) -> None:
    first, second = Heard(), Heard()
    with watching(first), watching(second):
        Double.apply(x)
    assert first.calls == second.calls == ["Double"]


def test_an_exception_of_the_function_comes_through_and_everything_is_put_back(x: Tensor) -> None:
    code = torch.autograd.Function.apply.__func__.__code__
    calls = OpOverload.__call__, OpOverloadPacket.__call__
    with pytest.raises(TypeError), watching(Heard()):
        Double.apply("no tensor", None)
    assert torch.autograd.Function.apply.__func__.__code__ is code
    assert (OpOverload.__call__, OpOverloadPacket.__call__) == calls
    assert torch.equal(EARLY(x), 2 * x)


def test_gradients_are_what_they_are_without_watching(x: Tensor) -> None:
    with watching(Heard()):
        (heard,) = torch.autograd.grad(Double.apply(x, scale=5.0).sum(), x)
    (unheard,) = torch.autograd.grad(Double.apply(x, scale=5.0).sum(), x)
    assert torch.equal(heard, unheard)


def test_a_call_that_raises_is_said_to_have_raised(x: Tensor) -> None:
    heard = Heard()
    with watching(heard):
        with pytest.raises(TypeError):
            Double.apply("no tensor", None)
        with pytest.raises(RuntimeError):
            torch.ops.gradbot_watch_test.triple("no tensor")
    assert heard.calls == ["Double", "Double raised", "gradbot_watch_test::triple", "gradbot_watch_test::triple raised"]


def test_what_a_test_patches_meanwhile_stays_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    with watching(Heard()):
        monkeypatch.setattr(OpOverload, "__call__", lambda op, *args: "patched")
    assert triple._opoverload(torch.ones(1)) == "patched"


def test_sample_inputs_of_opcheck_are_heard(x: Tensor) -> None:
    heard = Heard()
    with watching(heard):
        torch.library.opcheck(triple, (x,), test_utils=("test_schema", "test_autograd_registration"))
    assert set(heard.calls) == {"gradbot_watch_test::triple"}
