"""Rules to check: right ones and ones that are wrong on purpose, made in a line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.api import check
from gradbot.model import CaseResult, CheckResult, Outcome

DOUBLE = torch.float64


def real(*shape: int, seed: int = 0) -> Tensor:
    """Reproducible values in [0.3, 1.3) that require grad."""
    generator = torch.Generator().manual_seed(100 + seed)
    return (0.3 + torch.rand(shape, dtype=DOUBLE, generator=generator)).requires_grad_()


def rule(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    jvp: Callable[..., Any] | None = None,
    *,
    materialize: bool = True,
) -> type[torch.autograd.Function]:
    """A Function; `backward(ctx, *grads)` and `jvp(ctx, *tangents)` find the forward's tensors in ctx.tensors."""

    def keep(ctx: Any, *args: Any) -> Any:
        ctx.save_for_backward(*args)
        ctx.save_for_forward(*args)
        ctx.set_materialize_grads(materialize)
        return forward(*args)

    body: dict[str, Any] = {
        "forward": staticmethod(keep),
        "backward": staticmethod(lambda ctx, *grads: backward(ctx, *ctx.saved_tensors, *grads)),
    }
    if jvp is not None:
        body["jvp"] = staticmethod(lambda ctx, *tangents: jvp(ctx, *ctx.saved_tensors, *tangents))
    return type("Rule", (torch.autograd.Function,), body)


def result_of(case: CaseResult, name: str) -> CheckResult:
    """The result of one check."""
    return next(each for each in case.checks if each.check == name)


def run(name: str, func: Callable[..., Any], *inputs: Any, **options: Any) -> CheckResult:
    """The result of one check, run alone."""
    return result_of(check(func, inputs, checks=[name], **options), name)


def kinds(result: CheckResult) -> list[str]:
    """The kinds of what was found."""
    return [each.kind for each in result.findings]


def assert_fails(result: CheckResult, kind: str) -> None:
    """The check failed, and names the kind."""
    assert result.outcome is Outcome.FAILED, result
    assert kind in kinds(result), result


def assert_passes(result: CheckResult) -> None:
    """The check passed and found nothing."""
    assert (result.outcome, kinds(result)) == (Outcome.PASSED, []), result
