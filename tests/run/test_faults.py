"""Whatever user code does to its process costs that one case: it is named with its cause, and all others go on.

Each fault runs in one worker between two cases that inspect the process, so that what a fault leaves behind is seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from run.pools import run, task
from run.waiting import wait_until

from gradbot.run.pool import Ended

FIRST = "value = 'first'"
WORKER_LOCALE = subprocess.run(
    [sys.executable, "-c", "import locale; print(locale.setlocale(locale.LC_ALL), end='')"],
    capture_output=True,
    text=True,
    check=True,
).stdout
INSPECT = """
import builtins, json, locale, os, signal, sys, time, threading
assert json.loads(json.dumps({"a": [1, 2.5]})) == {"a": [1, 2.5]}
if not imported:
    assert "GRADBOT_TEST_LEFT" not in os.environ
assert os.getcwd() == START
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert sys.getrecursionlimit() == 1000
assert locale.setlocale(locale.LC_ALL) == LOCALE
assert sys.stdout.fileno() == 1 and os.getpid() > 0 and time.time() > 1
assert threading.active_count() == 1
print("said")
value = "last"
"""


@dataclass(frozen=True)
class Fault:
    name: str
    code: str
    cause: str = ""  # of the crash; "" where the case ends with an answer
    detail: str = ""  # signal, exit code or limit
    error: str = ""  # the exception that ends the case
    timeout: float = 20.0
    memory_limit: int = 0


FAULTS = [
    Fault("segfault", "import ctypes; ctypes.string_at(0)", "signal", "SIGSEGV"),
    Fault("abort", "import os; os.abort()", "signal", "SIGABRT"),
    Fault("bus error", "import os, signal; os.kill(os.getpid(), signal.SIGBUS)", "signal", "SIGBUS"),
    Fault("illegal instruction", "import os, signal; os.kill(os.getpid(), signal.SIGILL)", "signal", "SIGILL"),
    Fault("floating-point exception", "import os, signal; os.kill(os.getpid(), signal.SIGFPE)", "signal", "SIGFPE"),
    Fault("kills itself", "import os; os.kill(os.getpid(), 9)", "signal", "SIGKILL"),
    Fault("terminates itself", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "signal", "SIGTERM"),
    Fault("kills its process group", "import os; os.killpg(0, 9)", "signal", "SIGKILL"),
    Fault("os._exit", "import os; os._exit(3)", "exit", "3"),
    Fault("os._exit as if all were well", "import os; os._exit(0)", "exit", "0"),
    Fault("C exit", "import ctypes; ctypes.CDLL(None).exit(5)", "exit", "5"),
    Fault("exec", "import os; os.execv('/bin/true', ['true'])", "exit", "0"),
    Fault("sys.exit", "import sys; sys.exit(4)", error="SystemExit"),
    Fault("KeyboardInterrupt", "raise KeyboardInterrupt", error="KeyboardInterrupt"),
    Fault("GeneratorExit", "raise GeneratorExit", error="GeneratorExit"),
    Fault("deep recursion", "def f(): f()\nf()", error="RecursionError"),
    Fault(
        "stack overflow",
        "import sys, functools\nsys.setrecursionlimit(10**9)\nclass A:\n  def __repr__(self): return repr(self)\n"
        "def f(n): return sorted([1], key=lambda _: f(n + 1))\nf(0)",
        "signal",
        "SIGSEGV",
    ),
    Fault("infinite loop in Python", "while True: pass", "timeout", "1.5 s", timeout=1.5),
    Fault("infinite loop in C", "sum(iter(int, 1))", "timeout", "1.5 s", timeout=1.5),
    Fault("stuck holding the GIL", "import ctypes; ctypes.PyDLL(None).pause()", "timeout", "1.5 s", timeout=1.5),
    Fault(
        "swallows everything",
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        "timeout",
        timeout=1.5,
    ),
    Fault("stops itself", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "timeout", timeout=1.5),
    Fault(
        "deadlocked threads",
        "import threading\na, b = threading.Lock(), threading.Lock()\n"
        "def f(x, y):\n  with x:\n    import time; time.sleep(.1)\n    y.acquire()\n"
        "t = [threading.Thread(target=f, args=p) for p in ((a, b), (b, a))]\n[x.start() for x in t]; [x.join() for x in t]",  # noqa: E501
        "timeout",
        timeout=1.5,
    ),
    Fault("a thread left running", "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()"),
    Fault(
        "a busy daemon thread left",
        "import threading\ndef f():\n  while True: pass\nthreading.Thread(target=f, daemon=True).start()",
    ),
    Fault("grandchildren that hold the pipes", "import subprocess; subprocess.Popen(['sleep', '77'])"),
    Fault(
        "a grandchild, then death", "import os, subprocess; subprocess.Popen(['sleep', '77']); os._exit(1)", "exit", "1"
    ),
    Fault(
        "a daemon in a session of its own",
        "import subprocess; subprocess.Popen(['sleep', '77'], start_new_session=True)",
    ),
    Fault("os.fork that returns twice", "import os; os.fork()"),
    Fault("a forked child that goes on working", "import os, time\nif os.fork() == 0: time.sleep(0.2)\nvalue = 1"),
    Fault("fork in C", "import ctypes; ctypes.CDLL(None).fork()"),
    Fault("a gigabyte of output", "import os\nb = b'x' * (1 << 20)\nfor _ in range(1024): os.write(1, b)"),
    Fault("closed descriptors", "import os; os.closerange(3, 4096)", "protocol"),
    Fault("closed stdout and stderr", "import os; os.close(1); os.close(2); os.close(0)"),
    Fault(
        "reused descriptors",
        "import os; os.closerange(3, 4096)\nfds = [os.open('/dev/null', os.O_RDWR) for _ in range(900)]",
        "protocol",
    ),
    Fault(
        "a descriptor replaced",
        "import os\nd = os.open('/dev/null', os.O_RDWR)\nfor fd in range(600, 800):\n  os.dup2(d, fd)",
        "protocol",
    ),
    Fault(
        "garbage into every descriptor",
        "import os\nfor fd in range(3, 1000):\n  try: os.write(fd, b'garbage\\n')\n  except OSError: pass",
        "protocol",
    ),
    Fault("NUL and invalid UTF-8", "import os; os.write(1, b'\\x00\\xff\\xfe' * 50); os.write(2, b'\\x80\\x00\\n')"),
    Fault(
        "replaced json",
        "import json\ndef bad(*a, **k): raise ValueError\njson.dumps = json.loads = bad\njson.JSONEncoder.encode = json.JSONDecoder.decode = json.JSONEncoder.iterencode = bad",  # noqa: E501
    ),
    Fault(
        "replaced os",
        "import os\ndef bad(*a, **k): raise ValueError\nfor n in ('read', 'write', 'getpid', '_exit', 'fstat', 'close', 'dup', 'getcwd'): setattr(os, n, bad)",  # noqa: E501
    ),
    Fault("replaced sys", "import sys\nsys.stdout = sys.stderr = None\nsys.exit = sys.exc_info = None"),
    Fault("replaced print and len", "import builtins\nbuiltins.print = builtins.len = builtins.open = None"),
    Fault("changed directory", "import os; os.chdir('/')"),
    Fault("a directory that is gone", "import os, tempfile\nd = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)"),
    Fault("changed environment", "import os; os.environ.clear(); os.environ['GRADBOT_TEST_LEFT'] = '1'"),
    Fault("changed locale", "import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')"),
    Fault(
        "changed signal handlers",
        "import signal\nfor s in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD): signal.signal(s, signal.SIG_IGN)",
    ),
    Fault(
        "an alarm left",
        "import signal; signal.signal(signal.SIGALRM, signal.SIG_DFL); signal.setitimer(signal.ITIMER_REAL, 0.05)",
    ),
    Fault("changed recursion limit", "import sys; sys.setrecursionlimit(50_000)"),
    Fault(
        "changed umask and limits",
        "import os, resource; os.umask(0o777); resource.setrlimit(resource.RLIMIT_NOFILE, (900, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))",  # noqa: E501
    ),
    Fault("allocation bomb", "x = bytearray(1 << 40)", error="MemoryError"),
    Fault(
        "allocation bomb, slow",
        "x = []\nwhile True: x.append(bytearray(1 << 24))",
        error="MemoryError",
        memory_limit=300 << 20,
    ),
    Fault(
        "a memory map over the limit",
        "import mmap\nm = mmap.mmap(-1, 1 << 30)\nfor i in range(0, 1 << 30, 4096): m[i] = 1\nimport time; time.sleep(9)",  # noqa: E501
        "memory",
        memory_limit=200 << 20,
    ),
    Fault(
        "an exception whose str raises",
        "class E(Exception):\n  def __str__(self): raise E\n  __repr__ = __str__\nraise E",
        error="E",
    ),
    Fault("non-ASCII names", "class Größe(Exception): pass\nraise Größe('→')", error="Größe"),
]


def _cases(fault: Fault, imports: bool) -> dict[str, Ended]:
    place = {"imports": fault.code} if imports else {"code": fault.code}
    middle = task("fault", **{"code": "", **place}, timeout=fault.timeout, import_timeout=fault.timeout)
    known = f"imported, START, LOCALE = {imports}, {os.getcwd()!r}, {WORKER_LOCALE!r}"
    return run([task("first", FIRST), middle, task("last", f"{known}\n{INSPECT}")], memory_limit=fault.memory_limit)


def _holds(fault: Fault, ended: dict[str, Ended]) -> None:
    assert set(ended) == {"first", "fault", "last"}
    assert _body(ended["first"]) == {"value": "first"}
    assert _body(ended["last"]) == {"value": "last"}, ended["last"].output_tail
    crash, reply = ended["fault"].crash, ended["fault"].reply
    if fault.cause:
        assert crash is not None
        assert crash.cause == fault.cause
        assert fault.detail in (crash.signal, str(crash.exit_code), crash.limit) or not fault.detail
        assert crash.cause in ("exit", "signal", "protocol") or crash.limit
    elif fault.error:
        assert reply is not None
        assert reply["body"]["error"] == fault.error
    else:
        assert reply is not None, crash
        assert "value" in reply["body"]


def _body(ended: Ended) -> object:
    return ended.reply["body"] if ended.reply else ended.crash


def _nothing_is_left(mark: str) -> None:
    wait_until(lambda: mark not in _commands(), lambda: "a process of user code outlived the run")


def _commands() -> str:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                found.append(file.read().replace("\0", " "))
        except OSError:
            continue
    return "\n".join(found)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_while_a_case_runs_costs_that_case(fault: Fault) -> None:
    _holds(fault, _cases(fault, imports=False))
    _nothing_is_left("sleep 77")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_while_a_module_is_imported_costs_that_module(fault: Fault) -> None:
    ended = _cases(fault, imports=True)
    if fault.cause and ended["fault"].crash and fault.cause != "protocol":
        assert ended["fault"].crash.stage == "import"
    _holds(fault, ended)


def test_the_suite_knows_many_ways() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30
