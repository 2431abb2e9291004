"""One worker process: started, watched, ended with everything that it started, and its death put into words."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gradbot.model import Crash
from gradbot.run.forking import Zygote
from gradbot.run.launch import BOOT, PACKAGE, TOKEN_VARIABLE, Launch, Process
from gradbot.run.output import Tail
from gradbot.run.protocol import EXIT_PIPE_LOST, EventReader, Message, encode


@dataclass(slots=True)
class WorkerProcess:
    """A running worker and the three pipes to it."""

    token: str
    popen: Process
    commands: int
    events: int
    output: int
    reader: EventReader
    tail: Tail = field(default_factory=Tail)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def send(self, message: Message) -> None:
        """Send a command. A worker that is gone is noticed by whoever waits for its answer."""
        data = encode(message)
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self.commands, data) :]

    def read_output(self) -> bool:
        """Take what user code printed; False at the end of the stream."""
        data = _read(self.output, 1 << 20)
        if data:
            self.tail.feed(data)
        return data != b""

    def read_events(self) -> Iterator[Message] | None:
        """The events that arrived, None where there are none; going through them may raise `ProtocolError`.

        Raises `EOFError` at the end of the stream.
        """
        data = _read(self.events, 1 << 20)
        if data == b"":
            raise EOFError
        return self.reader.feed(data) if data else None

    def kill(self) -> int:
        """End the worker and everything that it started, take its last output, and return its exit status."""
        self.popen.kill()
        status = self.popen.wait()
        kill_group(self.pid)
        sweep(self.token)
        deadline = time.monotonic() + 1.0
        while _read_into(self.tail, self.output) and time.monotonic() < deadline:
            pass
        return status

    def close(self) -> None:
        """Close the pipes."""
        for each in (self.commands, self.events, self.output):
            os.close(each)


def start(launch: Launch, token: str, zygote: Zygote | None = None) -> WorkerProcess:
    """Start a worker in a session and process group of its own: forked from `zygote`, or from nothing."""
    commands_read, commands_write = os.pipe()
    events_read, events_write = os.pipe()
    output_read, output_write = os.pipe()
    theirs = (commands_read, events_write, output_write)
    try:
        if zygote is not None:
            process = zygote.start(token, launch.lane_env, theirs)
        else:
            process = _spawn(launch, token, theirs)
    finally:
        for each in theirs:
            os.close(each)
    for each in (events_read, output_read):
        os.set_blocking(each, False)
    return WorkerProcess(
        token=token,
        popen=process,
        commands=commands_write,
        events=events_read,
        output=output_read,
        reader=EventReader(token),
    )


def _spawn(launch: Launch, token: str, fds: tuple[int, int, int]) -> Process:
    commands, events, output = fds
    arguments = [str(commands), str(events), token, *launch.arguments]
    return subprocess.Popen(
        [launch.python, "-c", BOOT, PACKAGE, launch.module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(commands, events),
        env={**launch.env, **launch.lane_env, TOKEN_VARIABLE: token},
        cwd=launch.cwd,
        start_new_session=True,
    )


def kill_group(pgid: int) -> None:
    """Kill a process group, whatever of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGKILL)


def sweep(token: str) -> None:
    """Kill what a worker started and put into another session: all processes that carry its token.

    `token` may be the common beginning of several tokens. Only Linux shows environments; elsewhere nothing is done.
    """
    mark = f"{TOKEN_VARIABLE}={token}".encode()
    for _ in range(3):  # a process may start another one while this looks
        found = [pid for pid in _processes() if pid != os.getpid() and _carries(pid, mark)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def crash_of_exit(status: int, *, stage: str, output_tail: str) -> Crash:
    """What the exit status of a worker that died by itself means. Negative: minus the signal's number."""
    if status < 0:
        name = signal_name(-status)
        message = "by user code, or because the machine ran out of memory" if name == "SIGKILL" else ""
        return Crash(cause="signal", signal=name, stage=stage, message=message, output_tail=output_tail)
    if status == EXIT_PIPE_LOST:
        message = "user code closed or replaced the file descriptor that carries the results"
        return Crash(cause="protocol", stage=stage, message=message, output_tail=output_tail)
    return Crash(cause="exit", exit_code=status, stage=stage, output_tail=output_tail)


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _read(fd: int, size: int) -> bytes | None:
    """Bytes; b"" at the end; None where there is nothing yet."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None


def _read_into(tail: Tail, fd: int) -> bool:
    data = _read(fd, 1 << 20)
    if data:
        tail.feed(data)
    return bool(data)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _carries(pid: int, mark: bytes) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z" and any(each.startswith(mark) for each in environ.split(b"\0"))
