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

    def function_raised(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What was about to run has raised."""

    def op_called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The op `ns::name` or `ns::name.overload` is about to run."""

    def op_raised(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What was about to run has raised."""


_QUIET = threading.local()
"""`on` while listeners run: what they call themselves, on this thread, is not heard."""


@contextlib.contextmanager
def watching(listener: Listener) -> Iterator[None]:
    """Hear of every call until the end of the block. Several listeners may be active at once."""
    with _PATCHING:
        if not _LISTENERS:
            _ACTIVE.append(_patch())
        _LISTENERS.append(listener)
    try:
        yield
    finally:
        with _PATCHING:
            _LISTENERS.remove(listener)
            if not _LISTENERS:
                _restore(_ACTIVE.pop())


def stop_hearing() -> None:
    """Hear of nothing any more in this process, a copy that was forked while a listener may have held a lock."""
    _LISTENERS.clear()


@dataclass(frozen=True, slots=True)
class _Patch:
    """What was exchanged, and for what. Tests patch the same things: what is no longer ours is left alone."""

    apply: FunctionType
    code: CodeType
    calls: tuple[tuple[Any, Callable[..., Any], Callable[..., Any]], ...]


_NAME = "_gradbot_called"
"""By this name the exchanged code, which has no closure of ours, finds `_called` in torch's module."""

_PATCHING = threading.Lock()
_LISTENERS: list[Listener] = []
_ACTIVE: list[_Patch] = []


def _patch() -> _Patch:
    apply: Any = torch.autograd.Function.apply
    function: FunctionType = apply.__func__
    code = function.__code__
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    exchanged = _exchanged(code)
    function.__globals__[_NAME] = functools.partial(_called, copy)
    function.__code__ = exchanged
    calls = []
    for cls, name_of in ((OpOverload, _overload_name), (OpOverloadPacket, _packet_name)):
        kept: Callable[..., Any] = cls.__call__
        calls.append((cls, kept, _op_call(kept, name_of)))
        cls.__call__ = calls[-1][2]  # type: ignore[method-assign]
    return _Patch(function, code, tuple(calls))


def _restore(patch: _Patch) -> None:
    patch.apply.__code__ = patch.code
    del patch.apply.__globals__[_NAME]
    for cls, kept, ours in patch.calls:
        if cls.__call__ is ours:
            cls.__call__ = kept


def _called(apply: Callable[..., Any], cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `Function.apply` runs. Functions that torch makes for registered ops are its own affair."""
    if cls.__module__.startswith("torch.") or not _audible(args, kwargs):
        return apply(cls, *args, **kwargs)
    _tell("function_called", cls, args, kwargs)
    try:
        return apply(cls, *args, **kwargs)
    except BaseException:
        _tell("function_raised", cls, args, kwargs)
        raise


def _tell(what: str, subject: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _QUIET.on = True
    try:
        for listener in _LISTENERS:
            getattr(listener, what)(subject, args, kwargs)
    finally:
        _QUIET.on = False


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
        return _gradbot_called(cls, args, kwargs)  # type: ignore[name-defined]  # noqa: F821

    assert isinstance(apply, FunctionType)
    return apply


def _without_cells(cls: type, *args: Any, **kwargs: Any) -> Any:
    return _gradbot_called(cls, args, kwargs)  # type: ignore[name-defined]  # noqa: F821


def _op_call(original: Callable[..., Any], name_of: Callable[[Any], str]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = name_of(self)
        if name.startswith(_TORCH_NAMESPACES) or not _audible(args, kwargs):
            return original(self, *args, **kwargs)
        _tell("op_called", name, args, kwargs)
        try:
            return original(self, *args, **kwargs)
        except BaseException:
            _tell("op_raised", name, args, kwargs)
            raise

    return call


# fmt: off
_TORCH_NAMESPACES = (
    "_c10d_functional::", "_c10d_functional_autograd::", "_dtensor::", "_native::", "_quantized::", "_test::",
    "aten::", "c10d::", "debug_mode_ops::", "debugprims::", "export::", "higher_order::", "inductor::",
    "inductor_prims::", "mkl::", "mkldnn::", "mkldnn_prepacked::", "onednn::", "onnx::", "prim::", "prims::",
    "profiler::", "quantization::", "quantized::", "rngprims::", "sparse::", "static_runtime::", "symm_mem::",
    "torch::",
)
# fmt: on
"""What is registered once torch is imported, with nothing else."""


def _overload_name(op: OpOverload[Any, Any]) -> str:
    return op._name


def _packet_name(packet: OpOverloadPacket[Any, Any]) -> str:
    return packet._qualified_op_name


def _audible(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is a plain one: not our own, not traced, not under a functorch transform, on real tensors."""
    if getattr(_QUIET, "on", False) or torch._C._are_functorch_transforms_active():
        return False
    if torch._C._get_tracing_state() is not None or torch.compiler.is_compiling():
        return False
    for value in args:
        if _is_traced(type(value)):
            return False
    return not (kwargs and any(_is_traced(type(value)) for value in kwargs.values()))


def _is_traced(kind: type) -> bool:
    return kind is not Tensor and issubclass(kind, Tensor) and kind.__name__ in ("FakeTensor", "FunctionalTensor")
