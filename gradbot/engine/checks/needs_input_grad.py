"""needs_input_grad: a gradient does not change when other inputs need none.

Frozen parameters are everyday, and `ctx.needs_input_grad` is easily tested for the wrong input. Every subset of up to
three inputs is tried; of more, each alone and each left out. Where freezing an input makes the function raise, nobody
trains on a wrong gradient: that is told as a warning, and decides nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from gradbot.engine.checks.context import Context, concluded, cotangents, raised, skipped
from gradbot.engine.checks.values import Values, disagrees
from gradbot.engine.user_errors import one_line
from gradbot.model import CheckName, CheckResult, Finding, Outcome, Severity

NAME = CheckName.NEEDS_INPUT_GRAD

ALL_SUBSETS_UP_TO = 3

SOLVER_ERROR = 1e-4
"""Relative; what a solver whose steps depend on what it solves for may be off by. Wrong gradients are off by more."""


def run(context: Context) -> CheckResult:
    """Compares gradients with a subset of the inputs requiring grad with those when all do."""
    count = len(context.subject.inputs)
    if count < 2:
        return skipped(NAME, "one_input")
    if context.problem.in_place:
        return skipped(NAME, "captured_inputs")
    try:
        outputs = context.subject.graph()
        directions = cotangents(outputs, context.generator(3))
        copies = [each.clone() for each in directions]
        full = torch.autograd.grad(outputs, context.subject.inputs, copies, allow_unused=True)
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "backward")
    findings, notes = context.found([partial(_one, context, each, directions, full) for each in subsets(count)])
    if findings and _one(context, frozenset(range(count)), directions, full) is not None:
        # copies that all require grad differ as well: the backward reaches the inputs through what else it is given
        return skipped(NAME, "captured_inputs")
    result = concluded(NAME, _by_input(findings), notes=notes)
    if findings and result.outcome is Outcome.PASSED:
        return replace(result, outcome=Outcome.INCONCLUSIVE, reason="raises_when_frozen", details=findings[0].details)
    return result


def subsets(count: int) -> tuple[frozenset[int], ...]:
    """Proper, non-empty subsets of inputs: first each left out, then each alone, then, of few, all others."""
    everything = frozenset(range(count))
    tried = [everything - {each} for each in range(count)] + [frozenset({each}) for each in range(count)]
    if count <= ALL_SUBSETS_UP_TO:
        tried += [
            frozenset(each) for size in range(2, count - 1) for each in itertools.combinations(range(count), size)
        ]
    return tuple(dict.fromkeys(tried))


def _one(context: Context, subset: frozenset[int], directions: Sequence[Tensor], full: Values) -> Finding | None:
    inputs = [each.detach().clone().requires_grad_(k in subset) for k, each in enumerate(context.subject.inputs)]
    wanted = [each for each in inputs if each.requires_grad]
    frozen = ", ".join(name for k, name in enumerate(context.subject.input_names) if k not in subset)
    try:
        result = context.subject.graph(inputs)
        live = [k for k, each in enumerate(result) if each.requires_grad]
        if live:
            found: Values = torch.autograd.grad(
                [result[k] for k in live], wanted, [directions[k].clone() for k in live], allow_unused=True
            )
        else:
            found = [None] * len(wanted)
    except Exception as error:  # noqa: BLE001 - it worked when all inputs required grad
        details = {"frozen": frozen, "message": one_line(error)}
        return context.finding(NAME, "needs_input_grad", severity=Severity.WARNING, details=details)
    allowed = max(context.rounding, SOLVER_ERROR)
    place = disagrees(found, [full[k] for k in sorted(subset)], relative=allowed, scales=())
    if place is None:
        return None
    return context.finding(NAME, "needs_input_grad", input=sorted(subset)[place], details={"frozen": frozen})


def _by_input(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    kept: dict[int | None, Finding] = {}
    for each in findings:
        kept.setdefault(each.input, each)
    return tuple(kept.values())
