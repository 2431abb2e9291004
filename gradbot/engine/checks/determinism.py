"""determinism: the same inputs give the same values and gradients, every time.

Repeats are bounded by time. A function that draws random numbers is replayed under a fixed seed; what differs even so
is not reproducible. The backward is repeated on one graph, on which nothing may carry over from call to call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradbot.engine.checks.context import Context, concluded, cotangents, raised
from gradbot.engine.checks.statistics import clopper_pearson
from gradbot.engine.checks.values import Values, distance, size
from gradbot.engine.problem import Linearization
from gradbot.engine.repeats import documented_op, nondeterministic_here, planned
from gradbot.engine.subject import seed_everything
from gradbot.model import CheckName, CheckResult, Evidence, Finding, Outcome, Spread

NAME = CheckName.DETERMINISM

STAGES = 4
FEW = 6  # repeats under a fixed seed, where the generator was seen to matter or not


def run(context: Context) -> CheckResult:
    """Repeats forward, backward and second backward; see `Spread` for what is measured."""
    repeats = planned(context.settings.determinism_seconds / STAGES, context.call_seconds, context.settings.repeats)
    inputs = context.subject.inputs
    try:
        spreads = [_spread("forward", repeats, lambda: _forward(context))]
        backward = context.earlier.get(CheckName.BACKWARD.value)
        if context.subject.selected and (backward is None or _usable(backward)):
            linear = Linearization(inputs=inputs, outputs=context.subject.graph())
            spreads += _backward(context, linear, repeats)
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "backward")
    findings = tuple(
        _finding(context, each)
        for each in spreads
        if each.differing and not each.largest <= context.settings.nondet_tol
    )
    return concluded(NAME, findings, evidence=Evidence(method="repeats", spreads=tuple(spreads)))


def _usable(backward: CheckResult) -> bool:
    return backward.outcome is not Outcome.UNSUPPORTED and backward.reason != "user_error"


def _forward(context: Context) -> Values:
    with torch.set_grad_enabled(context.problem.grad_mode):
        copies = context.subject.copies() if not context.problem.in_place else context.subject.inputs
        return [each.detach().clone() for each in context.subject.call(copies) if isinstance(each, Tensor)]


def _backward(context: Context, linear: Linearization, repeats: int) -> list[Spread]:
    directions = cotangents(linear.outputs, context.generator())

    def fresh() -> Values:
        other = Linearization(inputs=linear.inputs, outputs=context.subject.graph())
        return other.vjp([each.clone() for each in directions])

    def again() -> Values:
        # copies: what a backward does to its grad_outputs is for side_effects to say
        return linear.vjp([each.clone() for each in directions])

    def seeded() -> Values:
        seed_everything(context.seed)
        return again()

    first = again()
    on_new_graphs = _spread("backward", repeats, fresh, first)
    on_one_graph = _spread("state", repeats, again, first)
    if on_new_graphs.differing:
        # random from call to call: what differs on one graph is no state of the graph
        worst = max(on_new_graphs, replace(on_one_graph, stage="backward"), key=lambda each: each.largest)
        fixed = _spread("backward", FEW, seeded)
        spreads = [replace(worst, fixed_seed=fixed.differing > 0, documented_op=_documented(context, fresh))]
    else:
        spreads = [on_new_graphs, on_one_graph]
    second = _second_backward(context, linear, directions, repeats)
    return spreads if second is None else [*spreads, second]


def _documented(context: Context, compute: Callable[[], Values]) -> str:
    if not any(nondeterministic_here(each.device) for each in context.subject.inputs):
        return ""
    return documented_op(compute)


def _finding(context: Context, spread: Spread) -> Finding:
    forward = spread.stage == "forward"
    return context.finding(
        NAME,
        "nondeterministic_forward" if forward else "nondeterministic",
        methods=("forward",) if forward else ("backward", "vjp"),
        evidence=Evidence(method="repeats", spreads=(spread,)),
        details={
            "stage": spread.stage,
            "repeats": spread.repeats,
            "differing": spread.differing,
            "largest": spread.largest,
            "relative": spread.relative,
            "fixed_seed": spread.fixed_seed,
            "documented_op": spread.documented_op,
        },
    )


def _spread(stage: str, repeats: int, evaluate: Callable[[], Values], first: Values | None = None) -> Spread:
    reference = evaluate() if first is None else first
    sizes = tuple(distance(evaluate(), reference) for _ in range(repeats - 1))
    differing = sum(size != 0 for size in sizes)
    low, high = clopper_pearson(differing, len(sizes))
    scale = size(reference)
    largest = max(sizes, default=0.0)
    return Spread(
        stage=stage,
        repeats=repeats,
        differing=differing,
        largest=largest,
        relative=largest / scale if scale else 0.0,
        sizes=sizes if differing else (),
        rate_low=low,
        rate_high=high,
    )


def _second_backward(
    context: Context, linear: Linearization, directions: Sequence[Tensor], repeats: int
) -> Spread | None:
    """None where the backward cannot be differentiated: that is for double_backward to say."""
    try:
        gradients = torch.autograd.grad(
            linear.outputs, linear.inputs, list(directions), create_graph=True, retain_graph=True, allow_unused=True
        )
        roots = [each for each in gradients if each is not None and each.requires_grad]
        if not roots:
            return None
        seconds = [each.detach() for each in cotangents(tuple(roots), context.generator(1))]

        def again() -> Values:
            return torch.autograd.grad(roots, linear.inputs, seconds, retain_graph=True, allow_unused=True)

        return _spread("second_backward", repeats, again)
    except Exception:  # noqa: BLE001
        return None
