"""Checking one case with every check: the native engine behind `gradbot.check` and the workers.

From the function to the finding: `prepare` finds out how to differentiate it, each file of `checks` looks at one
property, `expectations` applies what was declared. Nothing is raised for a wrong gradient, and the process is left as
it was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradbot.engine import expectations
from gradbot.engine.checks.context import Context
from gradbot.engine.isolation import preserved
from gradbot.engine.places import function_location, method_location
from gradbot.engine.prepare import NothingToCheckError, Prepared, UserCodeError, involved_tensors, prepare
from gradbot.engine.references import References
from gradbot.engine.resample import moved_off, undecided
from gradbot.engine.running import overall, rounding, run_checks
from gradbot.engine.second_looks import Looked, looked_again, may_be_excused
from gradbot.engine.user_errors import meaning
from gradbot.errors import UsageError
from gradbot.model import (
    EXPECTATIONS,
    Case,
    CaseResult,
    CheckName,
    CheckResult,
    CheckSettings,
    Finding,
    InputSource,
    Mode,
    Outcome,
    TensorSummary,
)
from gradbot.rules import RULES

__all__ = ["References", "check", "check_case"]


def check(
    func: Callable[..., Any],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    checks: Sequence[str] | None = None,
    skip_checks: Sequence[str] = (),
    require: Sequence[str] = (),
    mode: str = "auto",
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    nondet_tol: float = 0.0,
    masked: bool = False,
    seed: int = 0,
    repeats: int = 8,
    determinism_seconds: float = 1.0,
    memory_bytes: int = 1 << 30,
    resample: bool = False,
    expect: str = "",
    expect_kinds: Sequence[str] = (),
    reason: str = "",
    reference: Callable[..., Any] | None = None,
    surrogate_of: Callable[..., Any] | None = None,
    projection: Callable[..., Any] | None = None,
    invariant: Callable[..., Any] | None = None,
) -> CaseResult:
    """Checks the derivatives of `func(*inputs, **kwargs)` and returns everything that was found, as data.

    `inputs` is a tuple or list of arguments (or one tensor); arguments may be nested containers, modules, sparse or
    complex tensors, numbers, None. Tensors that require grad are checked, and parameters of modules; where none
    requires grad, every floating-point or complex tensor is. `checks` names the checks to run (all that the target
    supports by default). `eps`, `atol` and `rtol` are chosen by dtype where None. `expect` is one of
    `model.EXPECTATIONS` and needs a `reason`. For `reference`, `surrogate_of`, `projection` and `invariant` see
    `References`.

    Raises `UsageError` for options that make no sense; a wrong gradient, or user code that raises, is a result.
    """
    arguments = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    settings = CheckSettings(
        mode=_mode(mode),
        eps=eps,
        atol=atol,
        rtol=rtol,
        nondet_tol=nondet_tol,
        masked=masked,
        checks=_names(checks or (), "checks"),
        skip_checks=_names(skip_checks, "skip_checks"),
        require=_names(require, "require"),
        expect=_expectation(expect, reason),
        expect_kinds=tuple(expect_kinds),
        reason=reason,
        repeats=repeats,
        determinism_seconds=determinism_seconds,
        memory_bytes=memory_bytes,
        resample=resample,
    )
    function_class = _function_class(func)
    named = function_class or func
    name = f"{getattr(named, '__module__', '')}:{getattr(named, '__qualname__', type(named).__qualname__)}"
    first = next((each for each in involved_tensors(func, arguments, kwargs or {})), None)
    case = Case(
        id=name,
        target=name,
        name="",
        source=InputSource.DECLARED,
        reference="",
        device="cpu" if first is None else str(first.device),
        dtype="" if first is None else str(first.dtype).removeprefix("torch."),
        seed=seed,
        settings=settings,
    )
    return check_case(
        case,
        func,
        arguments,
        kwargs or {},
        function_class=function_class,
        references=References(
            reference=reference, surrogate_of=surrogate_of, projection=projection, invariant=invariant
        ),
    )


def check_case(
    case: Case,
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    function_class: type | None = None,
    op: Any = None,
    references: References | None = None,
    on_stage: Callable[[str], None] = lambda _stage: None,
    on_check: Callable[[CheckResult], None] = lambda _result: None,
) -> CaseResult:
    """Runs every selected check of `case.settings` on `func(*args, **kwargs)`.

    `function_class` is the `torch.autograd.Function` and `op` the `OpOverload` that is the target, where it is one.
    `on_stage` is told the name of each stage before it begins, so that a crash can be placed: "forward", then the
    checks' names. `on_check` is given the result of each check that was made before the next one begins, so that a
    crash does not cost it, but for failures that a second look may excuse; with `settings.resample` a second one for
    the same check takes the place of the first.
    """
    start = time.perf_counter()
    with preserved(involved_tensors(func, args, kwargs)):
        result = _check_case(
            case, func, args, kwargs, function_class, op, references or References(), on_stage, on_check
        )
    location = method_location(function_class, "forward") or function_location(func)
    return replace(result, location=location, seconds=time.perf_counter() - start)


def _check_case(
    case: Case,
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    function_class: type | None,
    op: Any,
    references: References,
    on_stage: Callable[[str], None],
    on_check: Callable[[CheckResult], None],
) -> CaseResult:
    on_stage("forward")
    try:
        prepared = prepare(func, args, kwargs, seed=case.seed, references=references)
    except NothingToCheckError:
        return CaseResult(case=case, outcome=Outcome.SKIPPED, reason="no_differentiable_input")
    except UserCodeError as error:
        return _errored(case, error, func, function_class)

    def told(result: CheckResult) -> None:
        if not may_be_excused(prepared, result, references):
            on_check(result)

    def checked(prepared: Prepared, references: References, tell: Callable[[CheckResult], None]) -> Looked:
        results = _results(case, prepared, function_class, op, references, on_stage, tell)
        return Looked(prepared=prepared, results=results)

    def look(func: Callable[..., Any], references: References) -> Looked:
        again = prepare(func, args, kwargs, seed=case.seed, references=references)
        return checked(again, references, lambda _result: None)

    looked = checked(prepared, references, told)
    if case.settings.resample and undecided(looked.results):
        try:
            moved = moved_off(prepared, case.seed)
        except UserCodeError:
            moved = None  # beyond the edge of the domain
        if moved is not None:
            looked = checked(moved, references, told)
    looked = looked_again(looked, func, references, look)
    prepared, results = looked.prepared, looked.results
    return CaseResult(
        case=case,
        outcome=overall(results),
        checks=results,
        inputs=_summaries(prepared.subject.input_names, prepared.subject.inputs),
        outputs=_output_summaries(prepared),
        notes=prepared.notes,
    )


def _results(
    case: Case,
    prepared: Prepared,
    function_class: type | None,
    op: Any,
    references: References,
    on_stage: Callable[[str], None],
    on_check: Callable[[CheckResult], None],
) -> tuple[CheckResult, ...]:
    context = Context(
        prepared=prepared,
        settings=case.settings,
        target=case.target,
        seed=case.seed,
        function_class=function_class,
        op=op,
        references=references,
        call_seconds=prepared.call_seconds,
        rounding=rounding(prepared),
    )
    settings = _intended(case.settings, references)
    results = run_checks(context, on_stage, lambda result: on_check(expectations.declared(settings, result)))
    return expectations.apply(settings, results, draws=prepared.subject.seed is not None)


def _intended(settings: CheckSettings, references: References) -> CheckSettings:
    """A declared stand-in declares that the gradient is not the derivative."""
    if references.surrogate_of is None or settings.expect:
        return settings
    return replace(settings, expect="surrogate", reason="it is that of the declared surrogate")


def _errored(case: Case, error: UserCodeError, func: Callable[..., Any], function_class: type | None) -> CaseResult:
    cause = error.__cause__ or error
    found = meaning(cause, error.stage)
    rule = RULES["user_error_in_forward"]
    finding = Finding(
        rule=rule.id,
        kind=rule.kind,
        check=CheckName.BACKWARD.value,
        severity=rule.severity,
        location=method_location(function_class, "forward") or function_location(func),
        details=found.details,
    )
    result = CheckResult(
        check=CheckName.BACKWARD.value,
        outcome=Outcome.ERRORED,
        findings=(finding,),
        reason="user_error",
        details=found.details,
    )
    checks = expectations.apply(case.settings, (result,), draws=False)
    return CaseResult(
        case=case, outcome=overall(checks), checks=checks, reason="user_error", details=dict(found.details)
    )


def _summaries(names: Sequence[str], tensors: Sequence[Tensor]) -> tuple[TensorSummary, ...]:
    return tuple(
        TensorSummary(
            name=name,
            shape=tuple(each.shape),
            dtype=str(each.dtype).removeprefix("torch."),
            layout=str(each.layout).removeprefix("torch."),
            device=str(each.device),
            requires_grad=each.requires_grad,
        )
        for name, each in zip(names, tensors, strict=True)
    )


def _output_summaries(prepared: Prepared) -> tuple[TensorSummary, ...]:
    tensors = [(position, each) for position, each in enumerate(prepared.outputs) if isinstance(each, Tensor)]
    single = len(prepared.outputs) == 1
    names = ["output" if single else f"output {position}" for position, _ in tensors]
    return _summaries(names, [each for _, each in tensors])


def _function_class(func: Callable[..., Any]) -> type | None:
    owner = getattr(func, "__self__", None)
    return owner if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) else None


def _mode(mode: str) -> Mode:
    try:
        return Mode(mode)
    except ValueError:
        raise UsageError(f"mode is {mode!r}; it is one of {', '.join(each.value for each in Mode)}") from None


def _names(names: Sequence[str], option: str) -> tuple[str, ...]:
    known = [each.value for each in CheckName]
    for each in names:
        if each not in known:
            raise UsageError(f"{option} has {each!r}; the checks are {', '.join(known)}")
    return tuple(names)


def _expectation(expect: str, reason: str) -> str:
    if expect and expect not in EXPECTATIONS:
        raise UsageError(f"expect is {expect!r}; it is one of {', '.join(EXPECTATIONS)}")
    if expect and not reason:
        raise UsageError(f"expect={expect!r} needs a reason: say why the gradient is meant to differ")
    return expect
