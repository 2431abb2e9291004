"""A process that has imported torch and nothing of the user's, and forks workers from that state.

Starting a worker costs milliseconds instead of the seconds that importing torch takes, so that a dead worker is
replaced, and a failing case tried again in a process of its own, at almost no cost. CUDA allows it because nothing
here touches a device: each worker initialises its own.

Over a socket the supervisor sends `{"token", "env"}` with three descriptors: commands, events, output; or
`{"import": names}`, modules that workers from then on shall find imported. Answers are
`{"started": token, "pid": pid}`, and `{"exited": pid, "status": status}` when a worker ends; `status` is negative for
a signal.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any

from gradbot.worker.limits import die_with_parent

Worker = Callable[[], None]


def main(control: str, module: str, *arguments: str) -> None:
    """Fork workers that run `module.main(commands, events, token, *arguments)`; `module.preload()` comes first."""
    die_with_parent()
    worker_module = importlib.import_module(module)
    channel = socket.socket(fileno=int(control))
    try:
        worker_module.preload()
    except Exception as error:  # noqa: BLE001  most often ImportError; whatever it is, the supervisor is told
        channel.send(json.dumps({"unusable": f"{type(error).__name__}: {error}"}).encode())
        return
    _settle_memory()
    worker = _fork_workers(channel, worker_module.main, arguments)
    if worker is not None:  # this is a forked worker: nothing of the loop above it is on its stack
        worker()


def _fork_workers(channel: socket.socket, run: Callable[..., None], arguments: tuple[str, ...]) -> Worker | None:
    """Serve until the supervisor is gone (None), or, in a forked worker, return what it has to do."""
    woken, wake = os.pipe()
    for fd in (woken, wake):
        os.set_blocking(fd, False)
        fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        watched: list[Any] = [channel, woken]
        readable = select.select(watched, [], [])[0]
        if woken in readable:
            os.read(woken, 4096)
            _tell_exits(channel)
        if channel not in readable:
            continue
        data, fds, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        if not data:
            return None
        request = json.loads(data)
        if "import" in request:
            _import(request["import"])
            continue
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (channel.detach(), woken, wake):
                os.close(each)
            _become_worker(request["env"], fds[2])
            return lambda: run(str(fds[0]), str(fds[1]), request["token"], *arguments)
        for fd in fds:
            os.close(fd)
        channel.send(json.dumps({"started": request["token"], "pid": pid}).encode())


def _import(names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):  # not every version of torch has each
            importlib.import_module(name)
    _settle_memory()


def _settle_memory() -> None:
    """Else each worker's first collection of garbage copies the memory that it shares with this process."""
    gc.collect()
    gc.freeze()


def _become_worker(env: Mapping[str, str], output: int) -> None:
    os.setsid()
    os.environ.update(env)
    for fd in (1, 2):
        os.dup2(output, fd)
    os.close(output)


def _tell_exits(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        message: dict[str, Any] = {"exited": pid, "status": os.waitstatus_to_exitcode(status)}
        channel.send(json.dumps(message).encode())
