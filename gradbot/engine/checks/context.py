"""What every check is given, and the few ways in which a check ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.places import function_location, method_location
from gradbot.engine.prepare import Prepared
from gradbot.engine.problem import Problem
from gradbot.engine.references import References
from gradbot.engine.subject import Subject
from gradbot.engine.user_errors import is_ours, meaning
from gradbot.model import (
    Capability,
    Certainty,
    CheckName,
    CheckResult,
    CheckSettings,
    Diagnosis,
    Evidence,
    Finding,
    Location,
    Note,
    Outcome,
    Scalar,
    Severity,
)
from gradbot.rules import RULES

CHECK_SECONDS, CHECK_CALLS = 0.1, 3
"""What a check beside the Jacobian may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One case, ready to be checked.

    `earlier` are the results of the checks that ran before. `call_seconds` is what one call with its backward took,
    by which checks bound their repeats.
    """

    prepared: Prepared
    settings: CheckSettings
    seed: int
    function_class: type | None = None
    op: Any = None
    references: References = field(default_factory=References)
    earlier: Mapping[str, CheckResult] = field(default_factory=dict)
    call_seconds: float = 0.0
    rounding: float = 2.0**-26  # what another order of summation may change, relative to the size of the values
    target: str = ""  # its id, for configuration that is proposed

    @property
    def subject(self) -> Subject:
        """The function of its checked tensors, as the user wrote it."""
        return self.prepared.subject

    @property
    def problem(self) -> Problem:
        """The function of real strided tensors."""
        return self.prepared.problem

    def generator(self, salt: int = 0) -> torch.Generator:
        """A CPU generator of this case's own; the global one is never drawn from."""
        return torch.Generator().manual_seed((self.seed * 1_000_003 + salt) % (1 << 63))

    def found(self, attempts: Sequence[Callable[[], Finding | None]]) -> tuple[tuple[Finding, ...], tuple[Note, ...]]:
        """What `attempts` find, the first one always made and further ones as time allows; a note where not all were.

        So many seconds are allowed and, of costly functions, the time of so many calls.
        """
        deadline = time.perf_counter() + CHECK_SECONDS + CHECK_CALLS * self.call_seconds
        findings: list[Finding] = []
        for done, attempt in enumerate(attempts):
            if done and time.perf_counter() > deadline:
                return tuple(findings), (Note(code="bounded", details={"done": done, "of": len(attempts)}),)
            finding = attempt()
            if finding is not None:
                findings.append(finding)
        return tuple(findings), ()

    def location(self, *methods: str) -> Location | None:
        """Where the first of a Function's `methods` stands, or the checked callable."""
        return method_location(self.function_class, *methods) or function_location(self.subject.func)

    def finding(
        self,
        check: CheckName,
        kind: str,
        *,
        methods: tuple[str, ...] = ("backward", "vjp"),
        output: int | None = None,
        input: int | None = None,
        severity: Severity | None = None,
        certainty: Certainty = Certainty.CERTAIN,
        evidence: Evidence | None = None,
        diagnosis: Diagnosis | None = None,
        details: Mapping[str, Scalar] | None = None,
        names: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
    ) -> Finding:
        """A finding of this case; `methods` are where its cause is looked for in a Function.

        `names` are those of outputs and inputs, where they are not the function's own.
        """
        output_names, input_names = names or (self.subject.output_names, self.subject.input_names)
        rule = RULES[kind]
        return Finding(
            rule=rule.id,
            kind=kind,
            check=check.value,
            severity=severity or rule.severity,
            certainty=certainty,
            output=output,
            input=input,
            output_name="" if output is None else _at(output_names, output),
            input_name="" if input is None else _at(input_names, input),
            location=self.location(*methods),
            evidence=evidence,
            diagnosis=diagnosis,
            details=dict(details or {}),
        )


Check = Callable[[Context], CheckResult]


def passed(check: CheckName, *, evidence: Evidence | None = None, notes: tuple[Note, ...] = ()) -> CheckResult:
    """The check ran and nothing is wrong."""
    return CheckResult(
        check=check.value, outcome=Outcome.PASSED, capability=Capability.SUPPORTED, evidence=evidence, notes=notes
    )


def unsupported(check: CheckName, reason: str, **details: Scalar) -> CheckResult:
    """The target does not offer this derivative; `reason` is a code of `messages.REASONS`."""
    return CheckResult(
        check=check.value,
        outcome=Outcome.UNSUPPORTED,
        capability=Capability.UNSUPPORTED,
        reason=reason,
        details=details,
    )


def skipped(check: CheckName, reason: str, **details: Scalar) -> CheckResult:
    """Nothing was checked, and why."""
    return CheckResult(check=check.value, outcome=Outcome.SKIPPED, reason=reason, details=details)


def concluded(
    check: CheckName,
    findings: tuple[Finding, ...],
    *,
    evidence: Evidence | None = None,
    notes: tuple[Note, ...] = (),
) -> CheckResult:
    """Failed where a finding is an error, else passed; warnings and notes are shown beside a pass."""
    wrong = any(each.severity is Severity.ERROR for each in findings)
    return CheckResult(
        check=check.value,
        outcome=Outcome.FAILED if wrong else Outcome.PASSED,
        capability=Capability.WRONG if wrong else Capability.SUPPORTED,
        findings=findings,
        evidence=evidence,
        notes=notes,
    )


def raised(context: Context, check: CheckName, error: BaseException, stage: str) -> CheckResult:
    """User code raised at `stage`: unsupported, a broken contract or an error, as its message says.

    An error of gradbot's own is raised again: it must never be told as one of the target.
    """
    if is_ours(error):
        raise error
    found = meaning(error, stage)
    if found.outcome is Outcome.UNSUPPORTED:
        return unsupported(check, found.reason, **found.details)
    methods = {"forward": ("forward",), "backward": ("backward", "vjp"), "jvp": ("jvp",)}[stage]
    finding = context.finding(check, found.kind, methods=methods, details=found.details)
    return CheckResult(
        check=check.value,
        outcome=found.outcome,
        capability=Capability.WRONG,
        findings=(finding,),
        reason=found.reason,
        details=found.details,
    )


def not_differentiable_again(context: Context, check: CheckName, error: BaseException, stage: str) -> CheckResult:
    """User code raised in a second derivative: that it has none is a capability, unless a contract is broken."""
    result = raised(context, check, error, stage)
    if result.outcome is Outcome.ERRORED:
        return unsupported(check, "no_second_derivative", **result.details)
    return result


def cotangents(outputs: tuple[Tensor, ...], generator: torch.Generator) -> tuple[Tensor, ...]:
    """Random cotangents like `outputs`: a sign times uniform in [0.5, 1.5], of complex ones in both parts."""
    return tuple(_random_like(each, generator) for each in outputs)


def _random_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    def draw() -> Tensor:
        signs = torch.randint(0, 2, tensor.shape, generator=generator).double() * 2 - 1
        return signs * (0.5 + torch.rand(tensor.shape, generator=generator, dtype=torch.float64))

    values = torch.complex(draw(), draw()) if tensor.is_complex() else draw()
    return values.to(dtype=tensor.dtype, device=tensor.device)


def _at(names: tuple[str, ...], position: int) -> str:
    return names[position] if position < len(names) else ""
