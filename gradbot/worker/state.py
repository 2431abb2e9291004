"""What a process shares between cases, as it was and as it is put back.

A case that changes the working directory, the environment, the locale, signal handlers, the recursion limit, resource
limits, the standard streams, torch's defaults or functions of the standard library must not be felt by the next one.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import faulthandler
import gc
import json
import locale
import math
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gradbot.worker.wire import high_copy

_WATCHED: tuple[ModuleType | type, ...] = (
    builtins,
    os,
    sys,
    json,
    json.decoder,
    json.encoder,
    json.JSONDecoder,
    json.JSONEncoder,
    time,
    math,
    signal,
    random,
)
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU)
_STREAMS = ("stdin", "stdout", "stderr", "excepthook", "displayhook")
_STANDARD_DESCRIPTORS = (0, 1, 2)

# taken hold of before user code can replace them
_getcwd, _getpid, _set_umask, _open, _read, _close = os.getcwd, os.getpid, os.umask, os.open, os.read, os.close
_fstat, _dup2, _chdir = os.fstat, os.dup2, os.chdir
_setlocale, _getsignal, _signal, _setitimer = locale.setlocale, signal.getsignal, signal.signal, signal.setitimer
_getrlimit, _setrlimit, _enumerate = resource.getrlimit, resource.setrlimit, threading.enumerate
_getrecursionlimit, _setrecursionlimit, _enable_gc = sys.getrecursionlimit, sys.setrecursionlimit, gc.enable
_CATCHABLE = tuple(each for each in signal.valid_signals() if each not in (signal.SIGKILL, signal.SIGSTOP))


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is put back."""

    cwd: str
    environ: Mapping[str, str]
    locale: str
    handlers: Mapping[int, Any]
    recursion_limit: int
    limits: Mapping[int, tuple[int, int]]
    umask: int
    streams: Mapping[str, Any]
    functions: tuple[tuple[ModuleType | type, str, Any], ...]
    threads: frozenset[int | None]
    children: frozenset[bytes]


def take(known: State | None = None) -> State:
    """The state as it is. With `known`, an earlier one since which nothing was imported, its functions are the same."""
    return State(
        cwd=_getcwd(),
        environ=dict(os.environ),
        locale=_setlocale(locale.LC_ALL),
        handlers={number: _getsignal(number) for number in _CATCHABLE},
        recursion_limit=_getrecursionlimit(),
        limits={name: _getrlimit(name) for name in _LIMITS},
        umask=_umask(),
        streams={name: getattr(sys, name) for name in _STREAMS},
        functions=_functions() if known is None else known.functions,
        threads=_threads(),
        children=_children(),
    )


def _functions() -> tuple[tuple[ModuleType | type, str, Any], ...]:
    return tuple(
        (place, name, value)
        for place in _WATCHED
        for name, value in vars(place).items()
        if callable(value) and name not in _STREAMS
    )


class Restorer:
    """Puts a state back. Holds copies of the standard descriptors, should user code close or replace them."""

    def __init__(self) -> None:
        self._copies = {fd: high_copy(fd) for fd in _STANDARD_DESCRIPTORS}
        self._identities = {fd: _identity(fd) for fd in _STANDARD_DESCRIPTORS}

    def restore(self, state: State, *, imported: bool = False) -> list[str]:
        """Put `state` back. Returns the names of standard functions that had been replaced.

        After an import, which may set variables and replace functions that its code relies on, the environment and
        replaced functions other than builtins stay, and threads that it left running are among the names.
        """
        altered = _restore_functions(state, keep=imported)
        _restore_signals(state)
        self._restore_descriptors()
        for name, stream in state.streams.items():
            setattr(sys, name, stream)
        _chdir(state.cwd)
        _setlocale(locale.LC_ALL, state.locale)
        _set_umask(state.umask)
        _setrecursionlimit(state.recursion_limit)
        _enable_gc()
        altered += _restore_limits(state)
        if not imported and dict(os.environ) != state.environ:
            os.environ.clear()
            os.environ.update(state.environ)
        if imported and _threads() - state.threads:
            altered.append("threads")
        return altered

    def _restore_descriptors(self) -> None:
        for fd, copy in self._copies.items():
            if _identity(fd) != self._identities[fd]:
                with contextlib.suppress(OSError):
                    _dup2(copy, fd)
        if not faulthandler.is_enabled():
            faulthandler.enable(2)


def _restore_functions(state: State, *, keep: bool) -> list[str]:
    altered = []
    for place, name, value in state.functions:
        if vars(place).get(name) is not value:
            altered.append(f"{place.__name__}.{name}")
            if not keep or place is builtins:
                setattr(place, name, value)
    return altered


def _restore_signals(state: State) -> None:
    _setitimer(signal.ITIMER_REAL, 0)
    for number, handler in state.handlers.items():
        if _getsignal(number) is not handler:
            _signal(number, signal.SIG_DFL if handler is None else handler)


def _restore_limits(state: State) -> list[str]:
    try:
        for name, limit in state.limits.items():
            if _getrlimit(name) != limit:
                _setrlimit(name, limit)
    except (ValueError, OSError):
        return ["resource limits"]
    return []


def left_behind(state: State) -> bool:
    """Whether threads or child processes run now that did not run then."""
    return bool(_threads() - state.threads) or bool(_children() - state.children)


def exit_handlers() -> int:
    """How many functions are registered to run at exit."""
    return atexit._ncallbacks()


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        status = _fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _umask() -> int:
    mask = _set_umask(0o022)
    _set_umask(mask)
    return mask


def _threads() -> frozenset[int | None]:
    return frozenset(each.ident for each in _enumerate() if each.is_alive())


def _children() -> frozenset[bytes]:
    """The processes that the main thread started; none where the system does not tell."""
    try:
        fd = _open(f"/proc/self/task/{_getpid()}/children", os.O_RDONLY)
    except OSError:
        return frozenset()
    try:
        return frozenset(_read(fd, 1 << 16).split())
    finally:
        _close(fd)
