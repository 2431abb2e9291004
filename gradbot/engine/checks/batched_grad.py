"""batched_grad: the backward under either vmap gives what a loop gives."""

from __future__ import annotations

import torch
from torch import Tensor

from gradbot.engine.checks.batching import BATCH, attempt, batch_of, declares_rule, refusals, stacked
from gradbot.engine.checks.context import Context, concluded, cotangents, raised, skipped, unsupported
from gradbot.engine.checks.values import Values
from gradbot.model import CheckName, CheckResult

NAME = CheckName.BATCHED_GRAD


def run(context: Context) -> CheckResult:
    """Compares `BATCH` cotangents at once with one after the other, then whole vjps at neighbouring points."""
    subject = context.subject
    if subject.seed is not None:
        return skipped(NAME, "random_batched")
    if any(each.layout is not torch.strided or each.is_mkldnn for each in subject.inputs):
        return unsupported(NAME, "no_batching_layout")
    try:
        outputs = subject.graph()
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "backward")
    generator = context.generator(9)
    directions = [cotangents(outputs, generator) for _ in range(BATCH)]
    batch = tuple(torch.stack(each) for each in zip(*directions, strict=True))

    def grad(along: tuple[Tensor, ...], batched: bool) -> Values:
        return torch.autograd.grad(
            outputs,
            subject.inputs,
            [each.clone() for each in along],
            retain_graph=True,
            allow_unused=True,
            is_grads_batched=batched,
        )

    def legacy() -> Values:
        return stacked_like(grad(batch, True))

    def stacked_like(values: Values) -> Values:
        return [
            torch.zeros(BATCH, *like.shape, dtype=like.dtype, device=like.device) if each is None else each
            for each, like in zip(values, subject.inputs, strict=True)
        ]

    def grad_or_zeros(along: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        found = torch.autograd.grad(outputs, subject.inputs, along, retain_graph=True, allow_unused=True)
        return tuple(
            torch.zeros_like(like) if each is None else each for each, like in zip(found, subject.inputs, strict=True)
        )

    points = batch_of(subject.inputs, generator)
    count = len(points)

    def vjp(*tensors: Tensor) -> tuple[Tensor, ...]:
        values, pull = torch.func.vjp(lambda *inputs: subject.outputs(inputs), *tensors[:count])  # type: ignore[misc]
        return (*values, *pull(tensors[count:]))

    def one(k: int) -> Values:
        leaves = [each[k].clone().requires_grad_() for each in points]
        values = subject.graph(leaves)
        gradients = torch.autograd.grad(values, leaves, directions[k], allow_unused=True)
        return (*(each.detach() for each in values), *gradients)

    ways = [
        (
            "is_grads_batched",
            attempt(
                context,
                NAME,
                "batched_grad",
                "is_grads_batched",
                legacy,
                lambda: stacked([grad(each, False) for each in directions], subject.inputs),
                methods=("backward", "vjp"),
                declared=False,
            ),
        )
    ]
    ways.append(
        (
            "torch.func.vmap of autograd.grad",
            attempt(
                context,
                NAME,
                "batched_grad",
                "torch.func.vmap of autograd.grad",
                lambda: stacked_like(torch.func.vmap(lambda *along: grad_or_zeros(along))(*batch)),
                lambda: stacked([grad(each, False) for each in directions], subject.inputs),
                methods=("vmap", "backward", "vjp"),
                declared=False,
            ),
        )
    )
    if not context.problem.in_place and not subject.clones:
        ways.append(
            (
                "torch.func.vmap",
                attempt(
                    context,
                    NAME,
                    "batched_grad",
                    "torch.func.vmap",
                    lambda: torch.func.vmap(vjp)(*points, *batch),
                    lambda: stacked([one(k) for k in range(BATCH)], (*outputs, *subject.inputs)),
                    methods=("vmap", "backward"),
                    declared=declares_rule(context.function_class),
                    outputs=len(outputs),
                ),
            )
        )
    findings = tuple(found for _, (found, _) in ways if found is not None)
    if not findings and all(message for _, (_, message) in ways):
        return unsupported(NAME, "no_batching", message=ways[-1][1][1])
    return concluded(NAME, findings, notes=refusals(ways))
