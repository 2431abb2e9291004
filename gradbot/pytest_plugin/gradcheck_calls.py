"""`torch.autograd.gradcheck` and `gradgradcheck` with gradbot's engine behind them, and what the calls found as data.

A test sees the same verdicts, exceptions and return values as from torch. The code of torch's two functions is
exchanged and put back, so that references taken earlier are replaced too.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any

from gradbot import codec
from gradbot.model import (
    Case,
    CaseResult,
    CheckName,
    CheckResult,
    CheckSettings,
    Environment,
    Finding,
    InputSource,
    Location,
    Outcome,
    Report,
    Run,
    Target,
    TargetKind,
    TensorSummary,
)
from gradbot.version import __version__


@dataclass(slots=True)
class _Seen:
    """The custom Functions and ops that a gradcheck call reached, in order. A `watch.Listener`."""

    root: Path
    targets: dict[str, Target] = field(default_factory=dict)

    def function_called(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the class."""
        from gradbot.discover.runtime.functions import function_id, function_target

        if cls.__module__.split(".", maxsplit=1)[0] not in ("torch", "functorch", "gradbot"):
            name = function_id(cls)
            if name not in self.targets:
                self.targets[name] = function_target(cls, self.root)

    def op_called(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the op."""
        from gradbot.discover.runtime.ops import op_target

        short = name.removesuffix(".default")
        if short not in self.targets:
            self.targets[short] = op_target(name, self.root) or Target(id=short, kind=TargetKind.OP, seen="runtime")

    def function_raised(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """It was reached all the same."""

    def op_raised(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """It was reached all the same."""


@dataclass(slots=True)
class Calls:
    """Collects the gradcheck calls of the running test and writes them to `folder` when the test has ended."""

    folder: Path
    root: Path
    pending: list[tuple[CaseResult, Target]] = field(default_factory=list)

    def settle(self, test_id: str, path: str, line: int, *, test_passed: bool) -> None:
        """Give the calls of a test its id. A failed call in a test that passed is what the test expects."""
        location = Location(path=path.replace(os.sep, "/"), line=max(1, line), symbol=test_id.rpartition("::")[2])
        for index, (result, target) in enumerate(self.pending):
            named = target if target.id else replace(target, id=test_id, location=location)
            case = _named(result.case, named.id, f"{test_id}#{index + 1}", test_id)
            settled = replace(result, case=case, location=location)
            if test_passed and result.outcome in (Outcome.FAILED, Outcome.ERRORED):
                settled = _as_expected(settled)
            self._write(settled, named)
        self.pending.clear()

    def _write(self, result: CaseResult, target: Target) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        report = Report(targets=(target,), results=(result,))
        (self.folder / f"{uuid.uuid4().hex}.json").write_text(codec.dumps(report), encoding="utf-8")


def _named(case: Case, target: str, name: str, test_id: str) -> Case:
    return replace(
        case,
        id=f"{target}[{name}]{case.device}:{case.dtype}",
        target=target,
        name=name,
        reference=f"gradcheck_call:{name}",
        test_id=test_id,
    )


def _as_expected(result: CaseResult) -> CaseResult:
    reason = "the test passed, so it expects this"
    checks = tuple(
        replace(check, outcome=Outcome.EXPECTED_FAILURE, reason="configured", details={"reason": reason})
        if check.outcome in (Outcome.FAILED, Outcome.ERRORED)
        else check
        for check in result.checks
    )
    details = {"reason": reason}
    return replace(result, outcome=Outcome.EXPECTED_FAILURE, checks=checks, reason="configured", details=details)


@contextlib.contextmanager
def replaced(calls: Calls) -> Iterator[None]:
    """Put gradbot's engine behind torch's two functions until the end of the block."""
    import torch  # noqa: F401  the functions live in a module that torch hides behind a function of the same name

    module = sys.modules["torch.autograd.gradcheck"]
    with contextlib.ExitStack() as stack:
        for name, order in (("gradcheck", 1), ("gradgradcheck", 2)):
            function = getattr(module, name)
            stack.enter_context(_exchanged(function, _checker(name, order, inspect.signature(function), calls)))
        yield


def _checker(name: str, order: int, signature: inspect.Signature, calls: Calls) -> Callable[..., bool]:
    def check(*args: Any, **kwargs: Any) -> bool:
        from gradbot.engine import compat
        from gradbot.record.watch import watching

        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        options = {**bound.arguments, "raise_exception": True}
        ours: Callable[..., bool] = getattr(compat, name)
        seen, start = _Seen(calls.root), time.monotonic()
        error: Exception | None = None
        try:
            with watching(seen):
                ours(**options)
        except Exception as caught:  # noqa: BLE001  whatever user code raises is for the test, once it is noted
            error = caught
        findings = error.findings if isinstance(error, compat.GradcheckError) else ()
        result = _result(options, order, findings, error, time.monotonic() - start)
        target = next(iter(seen.targets.values()), Target(id="", kind=TargetKind.CALLABLE, seen="runtime"))
        calls.pending.append((result, target))
        if error is None:
            return True
        if isinstance(error, compat.GradcheckError) and not bound.arguments["raise_exception"]:
            return False
        raise error

    return check


def _gradcheck(*args: Any, **kwargs: Any) -> bool:
    return _gradbot_gradcheck(*args, **kwargs)  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _gradgradcheck(*args: Any, **kwargs: Any) -> bool:
    return _gradbot_gradgradcheck(*args, **kwargs)  # type: ignore[name-defined,no-any-return]  # noqa: F821


_CODE = {"gradcheck": _gradcheck.__code__, "gradgradcheck": _gradgradcheck.__code__}
"""Code to exchange; it runs with the globals of torch's module, where `_exchanged` puts what it calls."""


@contextlib.contextmanager
def _exchanged(function: FunctionType, replacement: Callable[..., bool]) -> Iterator[None]:
    """Let `function`, by whatever name it was imported, run `replacement`."""
    kept = function.__code__, function.__defaults__, function.__kwdefaults__
    key = f"_gradbot_{function.__name__}"
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    function.__globals__[key] = replacement
    function.__defaults__, function.__kwdefaults__ = None, None
    function.__code__ = _CODE[function.__name__]
    try:
        yield
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = kept
        del function.__signature__  # type: ignore[attr-defined]
        del function.__globals__[key]


def _result(
    options: Mapping[str, Any], order: int, findings: tuple[Finding, ...], error: Exception | None, seconds: float
) -> CaseResult:
    inputs = _summaries(options["inputs"])
    case = Case(
        id="",
        target="",
        name="",
        source=InputSource.GRADCHECK_CALL,
        reference="",
        device=inputs[0].device if inputs else "cpu",
        dtype=inputs[0].dtype if inputs else "",
        settings=CheckSettings(
            eps=options["eps"], atol=options["atol"], rtol=options["rtol"], nondet_tol=options["nondet_tol"]
        ),
    )
    checks = _checks(options, order, findings, error)
    outcome = Outcome.PASSED if error is None else Outcome.FAILED if findings else Outcome.ERRORED
    message = "" if error is None or findings else f"{type(error).__name__}: {_first_line(error)}"
    return CaseResult(
        case=case,
        outcome=outcome,
        checks=checks,
        inputs=inputs,
        reason="user_error" if message else "",
        details={"stage": "gradcheck", "message": message} if message else {},
        seconds=seconds,
    )


def _checks(
    options: Mapping[str, Any], order: int, findings: tuple[Finding, ...], error: Exception | None
) -> tuple[CheckResult, ...]:
    """One result a check that the call asked for; after a failure, only what is known to have failed."""
    if error is None:
        return tuple(CheckResult(check=name.value, outcome=Outcome.PASSED) for name in _asked(options, order))
    names = dict.fromkeys(finding.check for finding in findings)
    return tuple(
        CheckResult(check=name, outcome=Outcome.FAILED, findings=tuple(f for f in findings if f.check == name))
        for name in names
    )


def _asked(options: Mapping[str, Any], order: int) -> Iterator[CheckName]:
    first, second = CheckName.BACKWARD, CheckName.FORWARD_AD
    names = {"check_backward_ad": first, "check_forward_ad": second}
    if order == 2:
        names = {
            "check_rev_over_rev": CheckName.DOUBLE_BACKWARD,
            "check_fwd_over_rev": CheckName.FORWARD_OVER_BACKWARD,
        }
    others = {
        "check_batched_grad": CheckName.BATCHED_GRAD,
        "check_batched_forward_grad": CheckName.BATCHED_FORWARD_GRAD,
        "check_undefined_grad": CheckName.UNDEFINED_GRAD,
    }
    for option, name in {**names, **others}.items():
        if options.get(option):
            yield name


def _summaries(inputs: Any) -> tuple[TensorSummary, ...]:
    import torch

    several = inputs if isinstance(inputs, tuple | list) else (inputs,)
    return tuple(
        TensorSummary(
            name=str(index),
            shape=tuple(each.shape),
            dtype=str(each.dtype).removeprefix("torch."),
            layout=str(each.layout).removeprefix("torch."),
            device=str(each.device),
            requires_grad=each.requires_grad,
        )
        for index, each in enumerate(several)
        if isinstance(each, torch.Tensor)
    )


def _first_line(error: Exception) -> str:
    try:
        return (str(error).splitlines() or [""])[0][:300]
    except Exception:  # noqa: BLE001  an exception whose str() raises is still only a message
        return ""


def write_report(folder: Path, path: Path, command: tuple[str, ...]) -> str:
    """Join what every process wrote into one report at `path`; returns what to say about it."""
    results: list[CaseResult] = []
    targets: dict[str, Target] = {}
    for part in sorted(folder.glob("*.json")):
        report = codec.loads(part.read_text(encoding="utf-8"), Report)
        results.extend(report.results)
        targets.update({target.id: target for target in report.targets})
    if not results:
        return "gradbot: no gradcheck call was seen; no report was written"
    results.sort(key=lambda result: result.case.id)
    whole = Report(
        run=Run(tool_version=__version__, command=("pytest", *command), seconds=sum(each.seconds for each in results)),
        environments=(_environment(),),
        targets=tuple(targets[name] for name in sorted(targets)),
        results=tuple(replace(each, worker="cpu") for each in results),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(codec.dumps(whole), encoding="utf-8")
    except OSError as error:
        return f"gradbot: cannot write {path}: {error.strerror}"
    wrong = sum(result.outcome in (Outcome.FAILED, Outcome.ERRORED) for result in results)
    expected = sum(result.outcome is Outcome.EXPECTED_FAILURE for result in results)
    passed = len(results) - wrong - expected
    parts = [f"{passed} right", f"{wrong} wrong", *([f"{expected} failed as their tests expect"] if expected else [])]
    return f"gradbot: {len(results)} gradcheck calls, {', '.join(parts)} · {path} · gradbot report {path} shows them"


def _environment() -> Environment:
    import platform

    import torch

    return Environment(
        name="cpu",
        device="cpu",
        python=platform.python_version(),
        platform=platform.platform(),
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
    )
