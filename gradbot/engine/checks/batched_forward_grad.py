"""batched_forward_grad: the jvp under either vmap gives what a loop gives."""

from __future__ import annotations

import torch
import torch.autograd.forward_ad as fwAD
from torch import Tensor

from gradbot.engine.checks.batching import BATCH, attempt, batch_of, declares_rule, refusals, stacked
from gradbot.engine.checks.context import Context, concluded, cotangents, skipped, unsupported
from gradbot.engine.checks.values import Values
from gradbot.model import CheckName, CheckResult, Outcome

NAME = CheckName.BATCHED_FORWARD_GRAD


def run(context: Context) -> CheckResult:
    """Compares `BATCH` tangents at once with one after the other, then whole jvps at neighbouring points."""
    subject = context.subject
    forward = context.earlier.get(CheckName.FORWARD_AD.value)
    if forward is not None and forward.outcome is Outcome.UNSUPPORTED:
        return unsupported(NAME, forward.reason, **forward.details)
    if subject.seed is not None:
        return skipped(NAME, "random_batched")
    if context.problem.in_place:
        return skipped(NAME, "captured_inputs")
    generator = context.generator(10)
    directions = [cotangents(subject.inputs, generator) for _ in range(BATCH)]
    batch = tuple(torch.stack(each) for each in zip(*directions, strict=True))
    grad_mode = context.problem.grad_mode
    plain = tuple(each.detach().requires_grad_(grad_mode) for each in subject.inputs)
    points = batch_of(plain, generator)
    outputs = tuple(context.prepared.outputs[position].detach() for position in subject.selected)

    def dual(*tangents: Tensor, at: tuple[Tensor, ...] = plain) -> tuple[Tensor, ...]:
        with fwAD.dual_level():
            found = subject.outputs([fwAD.make_dual(x, t) for x, t in zip(at, tangents, strict=True)])  # type: ignore[no-untyped-call]
            pairs = [fwAD.unpack_dual(each) for each in found]  # type: ignore[no-untyped-call]
            return tuple(torch.zeros_like(p.primal) if p.tangent is None else p.tangent for p in pairs)

    def jvp(*tensors: Tensor) -> tuple[Tensor, ...]:
        half = len(plain)
        values, tangents = torch.func.jvp(lambda *inputs: subject.outputs(inputs), tensors[:half], tensors[half:])  # type: ignore[misc]
        return (*values, *tangents)

    def one(k: int) -> Values:
        at = tuple(each[k].clone().requires_grad_(grad_mode) for each in points)
        return (*subject.outputs(at), *dual(*directions[k], at=at))

    declared = declares_rule(context.function_class)
    ways = []
    with torch.set_grad_enabled(grad_mode):
        for form, batched, looped, promised in (
            (
                "forward_ad under vmap",
                lambda: torch._vmap_internals._vmap(dual, (0,) * len(batch), 0)(*batch),
                lambda: stacked([dual(*each) for each in directions], outputs),
                False,
            ),
            (
                "torch.func.vmap",
                lambda: torch.func.vmap(jvp)(*points, *batch),
                lambda: stacked([one(k) for k in range(BATCH)], (*outputs, *outputs)),
                declared,
            ),
        ):
            if form == "torch.func.vmap" and subject.clones:
                continue
            outcome = attempt(
                context,
                NAME,
                "batched_forward_grad",
                form,
                batched,
                looped,
                methods=("jvp", "vmap"),
                declared=promised,
                outputs=2 * len(outputs),
            )
            ways.append((form, outcome))
    findings = tuple(found for _, (found, _) in ways if found is not None)
    if not findings and all(message for _, (_, message) in ways):
        return unsupported(NAME, "no_batching", message=ways[-1][1][1])
    return concluded(NAME, findings, notes=refusals(ways))
