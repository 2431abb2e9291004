"""determinism: the same inputs give the same values and gradients, every time.

Repeats are bounded by time. A function that draws random numbers is replayed under a fixed seed; what differs even so
is not reproducible. The backward is repeated on one graph, on which nothing may carry over from call to call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gradbot.engine.checks.context import Context, concluded, cotangents, passed, raised, unsupported
from gradbot.engine.checks.statistics import clopper_pearson
from gradbot.engine.problem import Linearization
from gradbot.model import CheckName, CheckResult, Evidence, Finding, Spread

NAME = CheckName.DETERMINISM

Values = Sequence[Tensor | None]


def run(context: Context) -> CheckResult:
    """Repeats forward, backward and second backward; see `Spread` for what is measured."""
    if not context.subject.selected:
        return unsupported(NAME, "no_differentiable_output")
    problem = context.problem
    stages = 3
    repeats = context.repeats(context.settings.determinism_seconds / stages, context.settings.repeats)
    try:
        forward = _spread("forward", repeats, lambda: problem.evaluate(problem.inputs))
        linear = problem.linearize()
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "forward")
    directions = cotangents(linear.outputs, context.generator())
    try:
        first = linear.vjp(directions)
        backward = _spread("backward", repeats, lambda: linear.vjp(directions), first)
    except Exception as error:  # noqa: BLE001
        return raised(context, NAME, error, "backward")
    spreads = [forward, backward]
    second = _second_backward(context, linear, directions, repeats)
    if second is not None:
        spreads.append(second)
    findings = tuple(
        _finding(context, each)
        for each in spreads
        if each.differing and not each.largest <= context.settings.nondet_tol
    )
    evidence = Evidence(method="repeats", spreads=tuple(spreads))
    return concluded(NAME, findings, evidence=evidence) if findings else passed(NAME, evidence=evidence)


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
        },
    )


def _spread(stage: str, repeats: int, evaluate: Callable[[], Values], first: Values | None = None) -> Spread:
    reference = evaluate() if first is None else first
    sizes = tuple(distance(evaluate(), reference) for _ in range(repeats - 1))
    differing = sum(size != 0 for size in sizes)
    low, high = clopper_pearson(differing, len(sizes))
    scale = max((float(each.abs().max()) for each in reference if each is not None and each.numel()), default=0.0)
    largest = max(sizes, default=0.0)
    return Spread(
        stage=stage,
        repeats=repeats,
        differing=differing,
        largest=largest,
        relative=largest / scale if scale else 0.0,
        sizes=sizes,
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


def distance(left: Values, right: Values) -> float:
    """The largest absolute difference; infinite where one is missing, another shape or NaN on one side only."""
    if len(left) != len(right):
        return float("inf")
    return max((_distance(a, b) for a, b in zip(left, right, strict=True)), default=0.0)


def _distance(left: Tensor | None, right: Tensor | None) -> float:
    if left is None or right is None:
        # None is a gradient of zeros
        present = left if left is not None else right
        return 0.0 if present is None or not present.numel() else float(present.abs().max())
    if left.shape != right.shape:
        return float("inf")
    if torch.equal(left, right):
        return 0.0
    same = (left == right) | (left.isnan() & right.isnan())
    gap = torch.where(same, 0.0, (left - right).abs().double())
    return float(gap.nan_to_num(nan=torch.inf).max())
