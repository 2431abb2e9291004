"""The supervisor's side of a zygote: starts it, has it fork workers, and hears from it how they ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from gradbot.errors import UsageError
from gradbot.run.launch import BOOT, PACKAGE, TOKEN_VARIABLE, Launch, Process
from gradbot.run.output import Tail

START_SECONDS = 300.0
ZYGOTE = "gradbot.worker.zygote"


class Zygote:
    """One zygote for all workers of a run; started on first use and again after its death."""

    def __init__(self, launch: Launch, token: str) -> None:
        self._launch, self._token = launch, token
        self._popen: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._output = -1
        self._tail = Tail()
        self._exited: dict[int, int] = {}
        self._imports: tuple[str, ...] = ()

    def preload(self, names: tuple[str, ...]) -> None:
        """Have these modules imported before the next worker is forked."""
        self._imports = names
        if self._channel is not None and names:
            self._send_imports()

    def _send_imports(self) -> None:
        assert self._channel is not None
        with contextlib.suppress(OSError):  # it died: it is started anew, with these, when a worker is wanted
            self._channel.send(json.dumps({"import": self._imports}).encode())

    def start(self, token: str, env: Mapping[str, str], fds: tuple[int, int, int]) -> Process:
        """Fork a worker that has the descriptors `fds`: commands to read, events and output to write."""
        if self._popen is None or self._popen.poll() is not None:
            self._begin()
        assert self._channel is not None
        request = json.dumps({"token": token, "env": {**env, TOKEN_VARIABLE: token}})
        socket.send_fds(self._channel, [request.encode()], list(fds))
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for message in self._messages(0.1):
                if message.get("started") == token:
                    return ForkedProcess(self, int(message["pid"]))
            if self._popen is None or self._popen.poll() is not None:
                break
        raise UsageError(self._why_not())

    def status(self, pid: int, wait: float = 0.0) -> int | None:
        """The exit status of a worker, None while it runs. A worker whose zygote died was killed with it."""
        deadline = time.monotonic() + wait
        while pid not in self._exited:
            gone = self._popen is None or self._popen.poll() is not None
            for _ in self._messages(min(0.05, wait)):
                pass
            if pid not in self._exited and gone:
                return -signal.SIGKILL
            if time.monotonic() >= deadline:
                break
        return self._exited.get(pid)

    def close(self) -> None:
        """End the zygote, and with it all workers that are left."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            os.close(self._output)
        if self._channel is not None:
            self._channel.close()
        self._popen = self._channel = None

    def _begin(self) -> None:
        self.close()
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output, output_write = os.pipe()
        launch = self._launch
        self._popen = subprocess.Popen(
            [launch.python, "-c", BOOT, PACKAGE, ZYGOTE, str(its.fileno()), launch.module, *launch.arguments],
            stdin=subprocess.DEVNULL,
            stdout=output_write,
            stderr=output_write,
            pass_fds=(its.fileno(),),
            env={**launch.env, TOKEN_VARIABLE: f"{self._token}.0"},
            cwd=launch.cwd,
            start_new_session=True,
        )
        its.close()
        os.close(output_write)
        os.set_blocking(self._output, False)
        self._channel = ours
        if self._imports:
            self._send_imports()

    def _messages(self, wait: float) -> list[Mapping[str, Any]]:
        """What the zygote says within `wait` seconds; exits are noted on the way."""
        messages: list[Mapping[str, Any]] = []
        self._read_output()
        while self._channel is not None and select.select([self._channel], [], [], wait)[0]:
            try:
                data = self._channel.recv(1 << 16)
            except ConnectionResetError:  # it ended with a request unread; what it said before comes next
                continue
            if not data:
                break
            message = json.loads(data)
            if "exited" in message:
                self._exited[message["exited"]] = message["status"]
            if "unusable" in message:
                raise UsageError(_unusable(self._launch.python, message["unusable"]))
            messages.append(message)
            wait = 0.0
        return messages

    def _read_output(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while data := os.read(self._output, 1 << 16):
                self._tail.feed(data)

    def _why_not(self) -> str:
        self._read_output()
        last = self._tail.text().strip().splitlines()[-1:] or ["it said nothing"]
        return f"no worker could be started with {self._launch.python}: {last[0]}"


class ForkedProcess:
    """A worker that a zygote forked, with the methods of `subprocess.Popen` that are needed."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self._zygote = zygote
        self.pid = pid

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        return self._zygote.status(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it is there. Raises `subprocess.TimeoutExpired`."""
        status = self._zygote.status(self.pid, 60.0 if timeout is None else timeout)
        if status is None:
            raise subprocess.TimeoutExpired("worker", timeout or 60.0)
        return status

    def kill(self) -> None:
        """Kill it, unless it has ended: its number may be another's by now."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def _unusable(python: str, message: str) -> str:
    hint = " (install PyTorch there, or name another interpreter with --python)" if "torch" in message else ""
    return f"{python} cannot run workers: {message}{hint}"
