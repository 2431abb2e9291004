"""Worker processes that are kept warm, given tasks, watched and replaced. One thread, one loop.

A task that kills its worker, hangs, or breaks the protocol costs itself alone: it ends with a `Crash`, the worker is
replaced, the rest goes on.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import selectors
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gradbot import messages
from gradbot.errors import UsageError
from gradbot.model import Crash
from gradbot.run import machine
from gradbot.run.forking import Zygote
from gradbot.run.launch import DEVICE_VARIABLE, Launch
from gradbot.run.process import WorkerProcess, crash_of_exit, start, sweep
from gradbot.run.protocol import Message, ProtocolError

TICK = 0.05
START_SECONDS = 300.0
EXIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A kind of worker: for which device, how many at once, and what its environment has beyond the others'."""

    name: str
    device: str
    slots: int = 1
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One command for a worker of `device`.

    `seconds` is expected, `timeout` allowed; what happens in the stage "import" has `import_timeout` of its own.
    `fresh`: only in a process that has run nothing else. `alone`: the process is ended after it, and how it ended
    belongs to the task. `module`: whose code is run.
    """

    key: str
    message: Message
    device: str = "cpu"
    timeout: float = 60.0
    import_timeout: float = 180.0
    seconds: float = 0.0
    fresh: bool = False
    alone: bool = False
    module: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a task ended: with a reply, or with a crash (both where the process died at its exit).

    `checks` are the results that a case had handed over before the crash, encoded.
    """

    task: Task
    reply: Message | None = None
    crash: Crash | None = None
    checks: tuple[Message, ...] = ()
    seconds: float = 0.0
    what: str = ""  # which thing the last stage was about
    lane: str = ""
    output_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadExit:
    """A worker that died while it ended. `suspects` are the tasks that registered exit handlers in it."""

    crash: Crash
    suspects: tuple[Task, ...]


@dataclass(slots=True)
class _Worker:
    process: WorkerProcess
    lane: Lane
    ready: bool = False
    used: bool = False
    task: Task | None = None
    n: int = 0
    began: float = 0.0
    deadline: float = float("inf")
    limit: float = 0.0
    stage: str = "start"
    what: str = ""
    checks: dict[str, Message] = field(default_factory=dict)
    altered_by: str | None = None
    suspects: list[Task] = field(default_factory=list)
    pending: Ended | None = None  # the end of a task that waits for its process to exit
    closing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How the pool works. `memory_limit` is in bytes a worker, 0 for none."""

    launch: Launch
    lanes: tuple[Lane, ...]
    token: str
    memory_limit: int = 0


class Pool:
    """Runs tasks. Use as a context manager; leaving it kills every worker."""

    def __init__(self, options: PoolOptions, *, on_stage: Callable[[Task, str, str], None] = lambda *_: None) -> None:
        self._options = options
        self._on_stage = on_stage
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._queues: dict[str, list[tuple[float, int, Task]]] = {}
        self._ended: list[Ended] = []
        self._zygote = Zygote(options.launch, options.token) if options.launch.fork else None
        self._numbers = itertools.count(1)
        self.bad_exits: list[BadExit] = []
        self.descriptions: dict[str, Message] = {}  # by lane: what its workers said of where they run
        self.stopped = False

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in list(self._workers):
            self._remove(worker)
        self._selector.close()
        if self._zygote is not None:
            self._zygote.close()
        sweep(self._options.token)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Which lanes there are."""
        return self._options.lanes

    def set_lanes(self, lanes: tuple[Lane, ...]) -> None:
        """Set which lanes there are from now on; workers of lanes that are gone end."""
        self._options = replace(self._options, lanes=lanes)
        for worker in list(self._workers):
            if worker.lane not in lanes and worker.task is None:
                self._end(worker)

    def preload(self, names: tuple[str, ...]) -> None:
        """Have workers from now on begin with these modules imported, where they are forked."""
        if self._zygote is None or not names:
            return
        self._zygote.preload(names)
        for worker in list(self._workers):
            if worker.task is None:
                self._end(worker)

    def submit(self, task: Task) -> None:
        """Queue a task. Longer ones are run first."""
        queue = self._queues.setdefault(task.device, [])
        heapq.heappush(queue, (-task.seconds, next(self._numbers), task))

    def run(self) -> Iterator[Ended]:
        """Give out tasks and yield how they end, until none is left; more may be submitted meanwhile.

        Stops early, with no worker left, once `stopped` is set.
        """
        while not self.stopped:
            while self._ended:
                yield self._ended.pop(0)
            self._dispatch()
            if not self._ended and not self._busy() and not any(self._queues.values()):
                return
            self._wait()

    def drain(self) -> None:
        """End all workers politely, so that exit handlers of user code run; see `bad_exits`."""
        for worker in list(self._workers):
            self._end(worker)
        while self._workers and not self.stopped:
            self._wait()

    def _busy(self) -> bool:
        return any(worker.task is not None or worker.pending is not None for worker in self._workers)

    # Giving out work

    def _dispatch(self) -> None:
        for lane in self._options.lanes:
            queue = self._queues.get(lane.device)
            if not queue:
                continue
            for worker in [each for each in self._workers if each.lane == lane]:
                if queue and worker.ready and worker.task is None and not worker.closing:
                    self._give(worker, queue)
            running = sum(each.lane == lane and not (each.closing and not each.pending) for each in self._workers)
            idle = sum(each.lane == lane and each.task is None and not each.closing for each in self._workers)
            for _ in range(min(lane.slots - running, len(queue) - idle)):
                self._start(lane)

    def _give(self, worker: _Worker, queue: list[tuple[float, int, Task]]) -> None:
        """The longest task that may run in this process; where none may, the process is replaced."""
        passed_over = []
        while queue:
            item = heapq.heappop(queue)
            task = item[2]
            if not worker.used or not (task.fresh or worker.altered_by not in (None, task.module)):
                self._command(worker, task)
                break
            passed_over.append(item)
        for item in passed_over:
            heapq.heappush(queue, item)
        if worker.task is None:
            self._end(worker)

    def _command(self, worker: _Worker, task: Task) -> None:
        worker.task, worker.n, worker.used = task, next(self._numbers), True
        worker.began = time.monotonic()
        worker.stage, worker.what, worker.checks = "", "", {}
        self._allow(worker, task.timeout)
        worker.process.tail.clear()
        limits = {"timeout": task.timeout, "import_timeout": task.import_timeout}
        worker.process.send({**task.message, **limits, "n": worker.n})

    def _allow(self, worker: _Worker, seconds: float) -> None:
        worker.limit, worker.deadline = seconds, time.monotonic() + seconds

    # Processes

    def _start(self, lane: Lane) -> None:
        launch = replace(self._options.launch, lane_env={**lane.env, DEVICE_VARIABLE: lane.device})
        process = start(launch, f"{self._options.token}.{next(self._numbers)}", self._zygote)
        worker = _Worker(process=process, lane=lane)
        self._allow(worker, START_SECONDS)
        self._workers.append(worker)
        self._selector.register(process.events, selectors.EVENT_READ, (worker, "events"))
        self._selector.register(process.output, selectors.EVENT_READ, (worker, "output"))

    def _end(self, worker: _Worker) -> None:
        """Ask a worker to end. One in which nothing waits to be run at exit is ended at once."""
        if worker.closing:
            return
        if not worker.suspects and worker.pending is None:
            self._remove(worker)
            return
        worker.closing, worker.stage = True, "exit"
        self._allow(worker, EXIT_SECONDS)
        worker.process.tail.clear()
        worker.process.send({"do": "exit", "n": 0})

    def _remove(self, worker: _Worker) -> int:
        self._workers.remove(worker)
        for fd in (worker.process.events, worker.process.output):
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
        status = worker.process.kill()
        worker.process.close()
        return status

    # Watching

    def _wait(self) -> None:
        for key, _ in self._selector.select(TICK):
            worker, stream = key.data
            if worker not in self._workers:
                continue
            if stream == "output":
                if not worker.process.read_output():
                    self._selector.unregister(worker.process.output)
                continue
            try:
                self._hear(worker)
            except EOFError:
                self._selector.unregister(worker.process.events)
                self._gone(worker)
        now = time.monotonic()
        for worker in list(self._workers):
            self._watch(worker, now)

    def _watch(self, worker: _Worker, now: float) -> None:
        if worker.process.popen.poll() is not None:
            self._hear_all(worker)
            if worker in self._workers:
                self._gone(worker)
        elif now > worker.deadline:
            self._hear_all(worker)
            if worker in self._workers and now > worker.deadline:
                self._late(worker)
        elif (limit := self._options.memory_limit) and machine.resident_bytes(worker.process.pid) > limit:
            self._lost(worker, Crash(cause="memory", limit=machine.bytes_text(limit)))

    def _hear(self, worker: _Worker) -> bool:
        """Take what the worker said; False where it said nothing. Raises `EOFError` where it closed its pipe."""
        events = worker.process.read_events()
        try:
            for event in events or ():
                self._event(worker, event)
        except ProtocolError as error:
            if worker in self._workers:
                self._lost(worker, Crash(cause="protocol", message=str(error)))
        return events is not None

    def _hear_all(self, worker: _Worker) -> None:
        """Take all that the worker said so far."""
        with contextlib.suppress(EOFError):
            while worker in self._workers and self._hear(worker):
                pass

    def _event(self, worker: _Worker, event: Message) -> None:
        kind = event.get("event")
        if kind == "ready":
            worker.ready, worker.deadline = True, float("inf")
            self.descriptions.setdefault(worker.lane.name, event)
        elif kind == "unusable":
            raise UsageError(str(event.get("message")))
        elif worker.task is None or event.get("n") != worker.n:
            return
        elif kind == "stage":
            self._stage(worker, worker.task, str(event.get("stage", "")), str(event.get("what", "")))
        elif kind == "check":
            result = event["result"]
            worker.checks[result["check"]] = result
        elif kind == "reply":
            self._reply(worker, worker.task, event)

    def _stage(self, worker: _Worker, task: Task, stage: str, what: str) -> None:
        if stage == "import":
            self._allow(worker, task.import_timeout)
        elif worker.stage in ("", "import") or task.message.get("do") == "collect":
            self._allow(worker, task.timeout)
        worker.stage, worker.what = stage, what
        self._on_stage(task, stage, what)

    def _reply(self, worker: _Worker, task: Task, event: Message) -> None:
        ended = Ended(
            task=task,
            reply=event,
            seconds=time.monotonic() - worker.began,
            what=worker.what,
            lane=worker.lane.name,
            output_tail=worker.process.tail.text(),
        )
        worker.task, worker.deadline = None, float("inf")
        if event.get("altered"):
            worker.altered_by = task.module
        if event.get("exit_handlers"):
            worker.suspects.append(task)
        if task.alone:
            worker.pending = ended
            self._end(worker)
            return
        self._ended.append(ended)
        if event.get("retire"):
            self._end(worker)

    def _late(self, worker: _Worker) -> None:
        self._lost(worker, Crash(cause="timeout", limit=f"{worker.limit:g} s"))

    def _gone(self, worker: _Worker) -> None:
        """The process died or closed its event pipe by itself."""
        try:
            status: int | None = worker.process.popen.wait(timeout=0.5)
        except Exception:  # noqa: BLE001  still alive: it has lost its pipe, not its life
            status = None
        if status is None:
            message = "user code closed or replaced the file descriptor that carries the results"
            self._lost(worker, Crash(cause="protocol", message=message))
        elif worker.closing and status == 0:
            self._remove(worker)
            if worker.pending is not None:
                self._ended.append(worker.pending)
        else:
            self._lost(worker, crash_of_exit(status, stage="", output_tail=""))

    def _lost(self, worker: _Worker, crash: Crash) -> None:
        """End the process and say what it cost."""
        self._remove(worker)
        crash = replace(crash, stage=worker.stage, output_tail=worker.process.tail.text())
        if not worker.ready:
            raise UsageError(_could_not_start(self._options.launch.python, crash))
        if worker.task is not None:
            seconds = time.monotonic() - worker.began
            ended = Ended(
                task=worker.task,
                crash=crash,
                checks=tuple(worker.checks.values()),
                seconds=seconds,
                what=worker.what,
                lane=worker.lane.name,
            )
            self._ended.append(ended)
        elif worker.pending is not None:
            self._ended.append(replace(worker.pending, crash=crash))
        elif worker.closing:
            self.bad_exits.append(BadExit(crash=crash, suspects=tuple(worker.suspects)))


def _could_not_start(python: str, crash: Crash) -> str:
    last = crash.output_tail.strip().splitlines()[-1:] or [messages.crash_text(crash)]
    return f"no worker could be started with {python}: {last[0]}"
