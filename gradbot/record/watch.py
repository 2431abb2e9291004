"""Sees every call of a custom Function or op in this process, however it was bound, while `watching` is active.

`Function.apply` is one function object that early-bound references, overriding `apply` methods and `super().apply`
all reach in the end; its code is exchanged and put back, so that references taken before are seen too. Ops are called
through `OpOverload.__call__` and `OpOverloadPacket.__call__`, which Python looks up on the class at every call.
Neither depends on the thread, unlike torch's modes.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket


class Listener(Protocol):
    """What hears of calls. Called before the call itself, because a forward may change or free its inputs."""

    def function_called(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """`cls.apply(*args, **kwargs)` is about to run."""

    def op_called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The op `ns::name` or `ns::name.overload` is about to run."""


_QUIET = threading.local()


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Calls made inside, on this thread, are not heard."""
    before = getattr(_QUIET, "on", False)
    _QUIET.on = True
    try:
        yield
    finally:
        _QUIET.on = before


@contextlib.contextmanager
def watching(listener: Listener) -> Iterator[None]:
    """Hear of every call until the end of the block. Several listeners may be active at once."""
    with _PATCHING:
        if not _LISTENERS:
            _ORIGINALS.append(_patch())
        _LISTENERS.append(listener)
    try:
        yield
    finally:
        with _PATCHING:
            _LISTENERS.remove(listener)
            if not _LISTENERS:
                _restore(_ORIGINALS.pop())


@dataclass(frozen=True, slots=True)
class _Originals:
    code: CodeType
    apply: Callable[..., Any]
    overload_call: Callable[..., Any]
    packet_call: Callable[..., Any]


# The exchanged code has no closure of ours, so what it needs stands at module level.
_PATCHING = threading.Lock()
_LISTENERS: list[Listener] = []
_ORIGINALS: list[_Originals] = []


def _patch() -> _Originals:
    apply: Any = torch.autograd.Function.apply
    function: FunctionType = apply.__func__
    code = function.__code__
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    originals = _Originals(code, copy, OpOverload.__call__, OpOverloadPacket.__call__)
    function.__code__ = _exchanged(code)
    OpOverload.__call__ = _op_call(originals.overload_call, _overload_name)  # type: ignore[method-assign]
    OpOverloadPacket.__call__ = _op_call(originals.packet_call, _packet_name)  # type: ignore[method-assign]
    return originals


def _restore(originals: _Originals) -> None:
    apply: Any = torch.autograd.Function.apply
    apply.__func__.__code__ = originals.code
    OpOverload.__call__ = originals.overload_call  # type: ignore[method-assign]
    OpOverloadPacket.__call__ = originals.packet_call  # type: ignore[method-assign]


def called(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the exchanged code of `Function.apply` runs. Functions that torch makes for registered ops are its own."""
    if not cls.__module__.startswith("torch.") and _audible(args, kwargs):
        with unseen():
            for listener in tuple(_LISTENERS):
                listener.function_called(cls, args, kwargs)
    return _ORIGINALS[-1].apply(cls, *args, **kwargs)


def _exchanged(code: CodeType) -> CodeType:
    """Code for `apply` with the free variables of the original, which Python demands of an exchange."""
    if code.co_freevars == ("__class__",):
        return _with_class_cell().__code__
    if not code.co_freevars:
        return _without_cells.__code__
    raise RuntimeError(
        f"torch.autograd.Function.apply has the free variables {code.co_freevars}; this torch is unknown"
    )


def _with_class_cell() -> FunctionType:
    __class__ = None

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        __class__  # noqa: B018  keeps it a free variable
        from gradbot.record.watch import called

        return called(cls, args, kwargs)

    assert isinstance(apply, FunctionType)
    return apply


def _without_cells(cls: type, *args: Any, **kwargs: Any) -> Any:
    from gradbot.record.watch import called

    return called(cls, args, kwargs)


def _op_call(original: Callable[..., Any], name_of: Callable[[Any], str]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = name_of(self)
        if not name.startswith(_TORCH_NAMESPACES) and _audible(args, kwargs):
            with unseen():
                for listener in tuple(_LISTENERS):
                    listener.op_called(name, args, kwargs)
        return original(self, *args, **kwargs)

    return call


_TORCH_NAMESPACES = ("aten::", "prim::", "prims::", "_c10d", "c10d", "inductor::", "torch::", "higher_order", "debug")


def _overload_name(op: OpOverload[Any, Any]) -> str:
    return op._name


def _packet_name(packet: OpOverloadPacket[Any, Any]) -> str:
    return packet._qualified_op_name


def _audible(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is a plain one: not our own, not traced, not under a functorch transform, on real tensors."""
    if getattr(_QUIET, "on", False) or torch.compiler.is_compiling():
        return False
    if torch._C._are_functorch_transforms_active() or torch._C._get_tracing_state() is not None:
        return False
    return not any(_is_traced(value) for value in (*args, *kwargs.values()))


def _is_traced(value: Any) -> bool:
    return isinstance(value, Tensor) and type(value).__name__ in ("FakeTensor", "FunctionalTensor")
