"""grad_outputs: the backward is linear in grad_outputs, and depends on values, never on how memory is laid out.

Jacobians are built from unit cotangents, freshly allocated, so that they say nothing about any other. Here come zeros,
negative, huge and added ones, and the same values transposed, strided, expanded and channels-last; then the inputs
themselves in other layouts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from gradbot.engine.checks import layouts
from gradbot.engine.checks.context import Context, concluded, cotangents, raised
from gradbot.engine.checks.values import Values, dense, disagrees, where_finite
from gradbot.engine.diagnose.strides import strides_ignored
from gradbot.engine.subject import seed_everything
from gradbot.engine.user_errors import one_line
from gradbot.model import CheckName, CheckResult, Finding, Severity

NAME = CheckName.GRAD_OUTPUTS

_SEED = 0
"""Where backwards that draw random numbers start from, or nothing could be compared."""

HUGE = 2.0**12  # a power of two, so that scaling is exact; within reach of float16


def run(context: Context) -> CheckResult:
    """See the module; every deviation is one finding."""
    subject = context.subject
    try:
        outputs = subject.graph()
        first = cotangents(outputs, context.generator(1))
        second = cotangents(outputs, context.generator(2))
        vjp = _vjp(outputs, subject.inputs, draws=False)
        state = torch.get_rng_state()
        base = vjp(first)
        draws = not torch.equal(state, torch.get_rng_state()) or any(each.is_cuda for each in subject.inputs)
        if draws:
            vjp = _vjp(outputs, subject.inputs, draws=True)
            base = vjp(first)
    except Exception as error:  # noqa: BLE001 - whatever user code raises is part of the verdict
        return raised(context, NAME, error, "backward")
    tests: list[Callable[[], Finding | None]] = [
        lambda: _zero(context, vjp, first, base),
        *(_layout_test(context, vjp, name, variant, base, draws=draws) for name, variant in _variants(first)),
        lambda: _scaled(context, vjp, first, base, HUGE),
        lambda: _scaled(context, vjp, first, base, -1.0),
        lambda: _added(context, vjp, first, second, base),
        *(_input_test(context, name, each, base, first, draws=draws) for name, each in _input_variants(context)),
    ]
    findings, notes = context.found(tests)
    return concluded(NAME, _first_of_each(findings), notes=notes)


def _vjp(outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], *, draws: bool) -> Callable[..., Values]:
    """The backward; with `draws`, of one seed, since it may draw random numbers."""

    def vjp(directions: Sequence[Tensor], seed: int = _SEED) -> Values:
        # a backward that writes into grad_output must not spoil the next test: copies of the same layout
        copies = [layouts.copy_of(each) for each in directions]
        if draws:
            seed_everything(seed)
        return torch.autograd.grad(outputs, inputs, copies, retain_graph=True, allow_unused=True)

    return vjp


def _zero(context: Context, vjp: Callable[..., Values], first: Sequence[Tensor], base: Values) -> Finding | None:
    found = vjp([torch.zeros_like(each) for each in first])
    for position, each in enumerate(where_finite(found, base)):
        if each is not None and bool((each != 0).any()):
            return context.finding(NAME, "backward_not_mul_by_grad_output", input=position)
    return None


def _scaled(
    context: Context, vjp: Callable[..., Values], first: Sequence[Tensor], base: Values, scale: float
) -> Finding | None:
    found = vjp([each * scale for each in first])
    expected = [None if each is None else each * scale for each in base]
    if any(each is not None and not dense(each).isfinite().all() for each in found) and abs(scale) > 1:
        return None  # an overflow of a low precision says nothing about linearity
    place = disagrees(where_finite(found, base), where_finite(expected, base), relative=context.rounding)
    if place is None:
        return None
    return context.finding(
        NAME,
        "nonlinear_backward",
        input=place,
        details={"scale": scale, "factor": _ratio(found[place], base[place])},
    )


def _added(
    context: Context, vjp: Callable[..., Values], first: Sequence[Tensor], second: Sequence[Tensor], base: Values
) -> Finding | None:
    other = vjp(second)
    both = vjp([a + 0.5 * b for a, b in zip(first, second, strict=True)])
    expected = [_sum(a, b) for a, b in zip(base, other, strict=True)]
    place = disagrees(
        where_finite(both, base), where_finite(expected, base), relative=2 * context.rounding, scales=base
    )
    return None if place is None else context.finding(NAME, "nonlinear_backward", input=place)


def _sum(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    if left is None or right is None:
        return left if right is None else 0.5 * right
    return dense(left) + 0.5 * dense(right)


def _ratio(found: Tensor | None, base: Tensor | None) -> float:
    if found is None or base is None or found.is_complex():
        return 0.0
    found, base = dense(found).double(), dense(base).double()
    largest = base.abs().flatten().argmax()
    return float(found.flatten()[largest] / base.flatten()[largest])


def _variants(first: Sequence[Tensor]) -> Iterator[tuple[str, list[Tensor]]]:
    """The first cotangents, every one that can be in each other layout; expanded ones have other values."""
    if any(each.layout is not torch.strided or each.is_mkldnn for each in first):
        return
    for name, arrange in layouts.ARRANGEMENTS:
        arranged = [arrange(each) for each in first]
        if any(each is not None for each in arranged):
            yield name, [old if new is None else new for old, new in zip(first, arranged, strict=True)]


def _layout_test(
    context: Context, vjp: Callable[..., Values], name: str, variant: list[Tensor], base: Values, *, draws: bool
) -> Callable[[], Finding | None]:
    def test() -> Finding | None:
        expected = vjp([each.clone(memory_format=torch.contiguous_format) for each in variant])
        try:
            found = vjp(variant)
        except Exception as error:  # noqa: BLE001 - contiguous grad_outputs were accepted: this layout is refused
            # aloud, which hurts where `sum` and `mean` hand such layouts down, and hardly for channels-last
            severity = Severity.NOTE if name == "channels_last" else None
            details = {"layout": name, "message": one_line(error)}
            return context.finding(NAME, "grad_output_layout", severity=severity, details=details)
        place = disagrees(
            where_finite(found, base), where_finite(expected, base), relative=context.rounding, scales=base
        )
        if place is None:
            return None
        contiguous = [each.clone(memory_format=torch.contiguous_format) for each in variant]
        if draws and disagrees(vjp(contiguous, _SEED + 1), expected, relative=context.rounding) is not None:
            return None  # random numbers fill memory in the order of its layout
        diagnosis = strides_ignored(vjp, variant, found, expected)
        return context.finding(NAME, "grad_output_layout", input=place, diagnosis=diagnosis, details={"layout": name})

    return test


def _input_variants(context: Context) -> Iterator[tuple[str, list[Tensor]]]:
    if context.problem.in_place or any(each.layout is not torch.strided for each in context.subject.inputs):
        return
    for name, arrange in itertools.islice(layouts.ARRANGEMENTS, layouts.VALUE_PRESERVING):
        arranged = [arrange(each.detach()) for each in context.subject.inputs]
        if any(each is not None for each in arranged):
            yield (
                name,
                [
                    (old.detach().clone() if new is None else new).requires_grad_()
                    for old, new in zip(context.subject.inputs, arranged, strict=True)
                ],
            )


def _input_test(
    context: Context, name: str, inputs: list[Tensor], base: Values, first: Sequence[Tensor], *, draws: bool
) -> Callable[[], Finding | None]:
    def test() -> Finding | None:
        try:
            outputs = context.subject.graph(inputs)
        except Exception:  # noqa: BLE001 - a forward may refuse a layout, aloud
            return None
        usual = [context.prepared.outputs[position] for position in context.subject.selected]
        if disagrees(outputs, usual, relative=context.rounding) is not None:
            return None  # a function of the layout by nature, as as_strided is: no gradient could be compared
        place, details = None, {"layout": name}
        try:
            copies = [each.clone() for each in first]
            if draws:
                seed_everything(_SEED)
            found = torch.autograd.grad(outputs, inputs, copies, allow_unused=True)
            place = disagrees(
                where_finite(found, base), where_finite(base, base), relative=context.rounding, scales=base
            )
            if place is None:
                return None
        except Exception as error:  # noqa: BLE001 - the forward took it and the backward did not
            details["message"] = one_line(error)
        if not _copies_stand_for_inputs(context, base, first, draws=draws):
            return None
        return context.finding(NAME, "input_layout", input=place, details=details)

    return test


def _copies_stand_for_inputs(context: Context, base: Values, first: Sequence[Tensor], *, draws: bool) -> bool:
    """Whether copies of the very same layout give the same gradients.

    They do not where the function holds the inputs a second time, as closures over a module's parameters do, nor where
    the backward draws random numbers, which fill memory in another order where it is laid out otherwise.
    """
    inputs = [each.detach().clone().requires_grad_() for each in context.subject.inputs]
    try:
        outputs = context.subject.graph(inputs)
        if draws:
            seed_everything(_SEED + 1)
        found = torch.autograd.grad(outputs, inputs, [each.clone() for each in first], allow_unused=True)
    except Exception:  # noqa: BLE001 - then it is the copies that it does not bear, whatever their layout
        return False
    return (
        disagrees(where_finite(found, base), where_finite(base, base), relative=context.rounding, scales=base) is None
    )


def _first_of_each(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """One finding a kind and input, the first; the layouts in which the same is seen are told together."""
    kept: dict[tuple[str, int | None], Finding] = {}
    for each in findings:
        kept.setdefault((each.kind, each.input), each)
    return tuple(kept.values())
