"""The worker: the process that imports torch and user code, lists cases and checks them, one after the other."""

from __future__ import annotations

import faulthandler
import hashlib
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradbot import codec
from gradbot.config import Config
from gradbot.errors import ExplainedError
from gradbot.model import Case, CaseResult, CheckResult, Crash, Discovery, InputSource, Outcome, SourceModule
from gradbot.run.launch import DEVICE_VARIABLE
from gradbot.worker.limits import die_with_parent, limit_memory, no_core_files
from gradbot.worker.recordings import as_stale, stale
from gradbot.worker.serve import Body, Turn, serve
from gradbot.worker.wire import Wire

_OUT_OF_MEMORY = ("can't allocate memory", "MemoryError", "out of memory", "Cannot allocate memory")
_PROCESS_GROUP = ("process group has not been initialized", "init_process_group", "ProcessGroup")


def preload() -> None:
    """Import what every worker needs, and nothing of the user's. Raises ImportError."""
    import torch  # noqa: F401

    import gradbot.discover.runtime
    import gradbot.engine.api
    import gradbot.inputs  # noqa: F401


def main(commands: str, events: str, token: str, memory_limit: str, threads: str) -> None:
    """Serve a supervisor over two inherited descriptors. `memory_limit` is in bytes, 0 for none."""
    die_with_parent()
    no_core_files()
    faulthandler.enable(2)
    wire = Wire(int(commands), int(events), token)
    try:
        preload()
    except Exception as error:  # noqa: BLE001  most often a missing torch; whatever it is, the supervisor is told
        wire.send("unusable", message=f"{sys.executable} cannot run workers: {type(error).__name__}: {error}")
        return
    import torch

    from gradbot.worker.environment import describe, devices

    torch.set_num_threads(int(threads))
    counts, reasons = devices()
    wire.send(
        "ready",
        environment=codec.encode(describe(os.environ.get(DEVICE_VARIABLE, "cpu"))),
        devices=counts,
        reasons=reasons,
    )
    if not any(counts[kind] for kind in counts if kind != "cpu"):  # drivers map far more than they use
        limit_memory(int(memory_limit))
    worker = _Worker(int(memory_limit))
    serve(wire, worker.handle)


class _Worker:
    """What a worker does with a command."""

    def __init__(self, memory_limit: int) -> None:
        self._memory_limit = memory_limit

    def handle(self, command: Mapping[str, Any], turn: Turn) -> Body:
        """The answer to a command. Whatever goes wrong in gradbot itself is an answer too."""
        try:
            if command["do"] == "collect":
                return _collect(command, turn)
            return self._case(command, turn)
        except BaseException as error:  # noqa: BLE001  user code may raise anything, also KeyboardInterrupt
            return {"broken": _described(error), "retire": True}

    def _case(self, command: Mapping[str, Any], turn: Turn) -> Body:
        from gradbot import inputs
        from gradbot.discover.runtime import import_source
        from gradbot.engine.isolation import preserved

        case, root = codec.decode(command["case"], Case), Path(command["root"])
        told = _Told(turn)
        try:
            with preserved():
                told("import", case.target)
                for module in command["modules"]:
                    import_source(codec.decode(module, SourceModule))
                inputs.import_case(case, root)
                told("inputs", case.reference)
                loaded = inputs.load_case(case, root)
                settled = replace(case, settings=loaded.settings)
                if settled.settings.deterministic_algorithms:
                    _ask_for_determinism()
                result = replace(_check(settled, loaded, told), case=settled)
        except BaseException as error:  # noqa: BLE001
            result = _errored(case, error, told)
        result = self._explained(result)
        return {"result": codec.encode(result), "retire": result.crash is not None and result.crash.cause == "memory"}

    def _explained(self, result: CaseResult) -> CaseResult:
        """Errors that say something else than what is wrong with the target: a limit was hit, a group is missing."""
        from gradbot.run.machine import bytes_text

        if result.outcome is not Outcome.ERRORED:
            return result
        checks = [
            (check, _said(check.details, *(finding.details for finding in check.findings))) for check in result.checks
        ]
        said = [*_said(result.details), *(text for _, texts in checks for text in texts)]
        if _any(_PROCESS_GROUP, said):
            return replace(result, outcome=Outcome.SKIPPED, reason="process_group", checks=(), crash=None)
        if not (self._memory_limit and _any(_OUT_OF_MEMORY, said)):
            return as_stale(result, str(result.details.get("message", ""))) if stale(result) else result
        hit = [check.check for check, texts in checks if _any(_OUT_OF_MEMORY, texts)]
        crash = Crash(
            cause="memory",
            limit=bytes_text(self._memory_limit),
            stage=next(iter(hit), "inputs"),
            message=next(text for text in said if _any(_OUT_OF_MEMORY, [text])),
        )
        return replace(result, crash=crash, checks=tuple(each for each in result.checks if each.check not in hit))


def _said(*details: Mapping[str, Any]) -> list[str]:
    """The texts among details: what exceptions said."""
    return [value for each in details for value in each.values() if isinstance(value, str)]


def _any(parts: tuple[str, ...], texts: list[str]) -> bool:
    return any(part in text for part in parts for text in texts)


class _Told:
    """Passes on stages and the results of checks; remembers the last stage, and the last result of each check."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.last = ""
        self.checks: dict[str, CheckResult] = {}

    def __call__(self, stage: str, what: str = "") -> None:
        self.last = stage
        self._turn.stage(stage, what)

    def check(self, result: CheckResult) -> None:
        self.checks[result.check] = result
        self._turn.check(codec.encode(result))


def _collect(command: Mapping[str, Any], turn: Turn) -> Body:
    from gradbot import inputs
    from gradbot.discover import runtime

    root = Path(command["root"])
    config = codec.decode(command["config"], Config)
    static = codec.decode(command["discovery"], Discovery)
    found = runtime.discover(static, root, on_import=lambda module: turn.stage("import", module.name))
    turn.stage("inputs")
    request = inputs.Request(
        root=root,
        config=config,
        targets={target.id: target for target in found.targets},
        case_files=found.case_files,
        declared=found.declared,
        modules=frozenset(module.name for module in found.modules),
        on_stage=turn.stage,
        skip=frozenset(command["skip"]),
    )
    collected = inputs.collect(request)
    known = {target.id for target in found.targets}
    found = replace(
        found,
        targets=(*found.targets, *(target for target in collected.targets if target.id not in known)),
        problems=(*found.problems, *collected.problems),
    )
    return {"discovery": codec.encode(found), "cases": [codec.encode(case) for case in collected.cases]}


def own_seed(case: Case) -> int:
    """What a case's random numbers are made from: its seed and its id, so that no order and no shard matters."""
    digest = hashlib.sha256(f"{case.seed}:{case.id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _ask_for_determinism() -> None:
    """What torch needs for deterministic algorithms; undone after the case."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


def _check(case: Case, loaded: Any, told: _Told) -> CaseResult:
    from gradbot.engine import api
    from gradbot.record.symmetric import check_recorded

    if case.settings.skip:
        details = {"reason": case.settings.skip}
        return CaseResult(case=case, outcome=Outcome.SKIPPED, reason="configured", details=details)
    check = api.check_case if case.source is not InputSource.RECORDED else check_recorded
    result = check(
        replace(case, seed=own_seed(case)),
        loaded.func,
        loaded.args,
        loaded.kwargs,
        function_class=loaded.function_class,
        op=loaded.op,
        references=loaded.references,
        on_stage=told,
        on_check=told.check,
    )
    return replace(result, notes=(*loaded.notes, *result.notes))


def _errored(case: Case, error: BaseException, told: _Told) -> CaseResult:
    """User code raised where the engine does not look: at import, while inputs are made, or what no one catches.

    The checks that were made before keep their results.
    """
    from gradbot.inputs.source import StaleRecordingError

    message = _described(error)
    crash = Crash(
        cause="exception",
        exit_code=error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else None,
        stage=told.last,
        message=message,
    )
    details = {"stage": told.last, "message": message}
    errored = CaseResult(case=case, outcome=Outcome.ERRORED, checks=tuple(told.checks.values()), details=details)
    if isinstance(error, StaleRecordingError):
        return as_stale(errored, message)
    if _is_ours(error):
        return replace(errored, reason="internal_error")
    return replace(errored, reason="user_error", crash=crash)


def _is_ours(error: BaseException) -> bool:
    """Whether gradbot raised this, by mistake."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or isinstance(error, ExplainedError):
        return False
    package = Path(__file__).resolve().parent.parent
    raised_in = Path(frames[-1].filename)
    return raised_in.is_relative_to(package) and not raised_in.is_relative_to(package / "demo")


def _described(error: BaseException) -> str:
    """An exception in one line, even one whose str() raises."""
    try:
        text = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001
        text = "(its message cannot be shown: str() raised)"
    if isinstance(error, ExplainedError):
        return text[:1000]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return ": ".join(filter(None, (type(error).__name__, text)))[:1000] + place
