"""side_effects: the function computes, and changes nothing else.

Inputs, grad_outputs, tensors saved for the backward, buffers of modules and global state are compared before and
after. Drawing random numbers is fine; setting the generator's state is not. What is declared (an in-place op, a
mutated argument that needs no grad) is no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.checks.context import Context, concluded, cotangents, raised
from gradbot.engine.checks.values import distance
from gradbot.model import CheckName, CheckResult, Finding, Severity

NAME = CheckName.SIDE_EFFECTS


def run(context: Context) -> CheckResult:
    """Runs forward and backward once, watched."""
    findings = [
        *_inputs(context),
        *_buffers(context),
        *_reseeding(context),
    ]
    before = _global_state()
    packed: list[Tensor] = []
    try:
        with torch.autograd.graph.saved_tensors_hooks(_recorder(packed), _unchanged):
            outputs = context.subject.graph()
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "forward")
    findings += _changed_state(context, before, "forward")
    if not outputs:
        return concluded(NAME, tuple(findings))
    directions = [each.clone() for each in cotangents(outputs, context.generator(4))]
    kept = [each.clone() for each in directions]
    inputs = [each.detach().clone() for each in context.subject.inputs]
    # only now: the forward itself may still have been writing into what it had saved
    saved = [(each, each.clone()) for each in _within(packed, context.settings.memory_bytes)]
    before = _global_state()
    try:
        torch.autograd.grad(outputs, context.subject.inputs, directions, allow_unused=True)
    except Exception as error:  # noqa: BLE001
        # what the backward says for itself is not told twice
        told = context.earlier.get(CheckName.BACKWARD.value)
        return raised(context, NAME, error, "backward") if told is None else concluded(NAME, tuple(findings))
    findings += _changed_state(context, before, "backward")
    for position, (now, then) in enumerate(zip(directions, kept, strict=True)):
        if distance([now], [then]):
            findings.append(context.finding(NAME, "grad_output_mutated", output=position))
    mutated = [k for k, each in enumerate(context.subject.inputs) if distance([each], [inputs[k]])]
    with torch.no_grad():
        for position in mutated:
            context.subject.inputs[position].data.copy_(inputs[position])
    if mutated:
        findings += [context.finding(NAME, "saved_tensor_mutated", input=position) for position in mutated]
    elif any(distance([now], [then]) for now, then in saved):
        findings.append(context.finding(NAME, "saved_tensor_mutated"))
    return concluded(NAME, tuple(findings))


def _inputs(context: Context) -> list[Finding]:
    names = context.subject.input_names
    return [
        context.finding(NAME, "input_mutated", methods=("forward",), input=names.index(each))
        for each in context.prepared.mutated
    ]


def _buffers(context: Context) -> list[Finding]:
    """Running statistics of torch's own modules change by design: said, and no warning."""
    found = []
    own = {
        id(buffer)
        for module in context.subject.modules
        for part in module.modules()
        if not type(part).__module__.startswith("torch.nn")
        for buffer in part._buffers.values()
    }
    changed = {id(each) for each in context.subject.fresh}
    for module in context.subject.modules:
        for name, buffer in module.named_buffers():
            if id(buffer) in changed:
                severity = None if id(buffer) in own else Severity.NOTE
                found.append(
                    context.finding(
                        NAME, "buffer_mutated", methods=("forward",), severity=severity, details={"buffer": name}
                    )
                )
    return found


def _reseeding(context: Context) -> list[Finding]:
    """A function that leaves the generator in one state whatever it found has set the seed for everyone."""
    if context.subject.seed is None:
        return []
    subject = context.subject.changed(seed=None)
    after = []
    try:
        for seed in (11, 12):
            torch.manual_seed(seed)
            with torch.no_grad():
                subject.call([each.detach().clone() for each in subject.inputs])
            after.append(torch.get_rng_state())
    except Exception:  # noqa: BLE001 - needs grad mode, or raises now and then; told elsewhere
        return []
    if not torch.equal(after[0], after[1]):
        return []
    # plain functions seed themselves in tests, to be reproducible; in a Function or op nobody expects it
    severity = Severity.WARNING if context.function_class is None and context.op is None else None
    details = {"state": "the random seed", "stage": "forward"}
    return [context.finding(NAME, "global_state_changed", methods=("forward",), severity=severity, details=details)]


def _recorder(packed: list[Tensor]) -> Callable[[Tensor], Tensor]:
    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor.detach())
        return tensor

    return pack


def _within(tensors: Sequence[Tensor], most_bytes: int) -> list[Tensor]:
    kept, spent = [], 0
    for each in tensors:
        spent += each.numel() * each.element_size()
        if spent <= most_bytes:
            kept.append(each)
    return kept


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


def _global_state() -> dict[str, Any]:
    """Random states are left out: drawing is fine, and who sets the seed is found by `_reseeding`."""
    return {
        "the default dtype": torch.get_default_dtype(),
        "grad mode": torch.is_grad_enabled(),
        "the number of threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "anomaly mode": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
    }


def _changed_state(context: Context, before: dict[str, Any], stage: str) -> Sequence[Finding]:
    after = _global_state()
    return [
        context.finding(
            NAME,
            "global_state_changed",
            methods=("forward",) if stage == "forward" else ("backward", "vjp"),
            details={"state": name, "stage": stage},
        )
        for name, value in before.items()
        if value != after[name]
    ]
