"""torch's OpInfo databases as cases: functions of the tensors that require grad, with what torch says about each op.

`op_db`, `autograd_function_db` and `custom_op_db` hold sample inputs for every op. The same wrappers, flags and
expected failures as in torch's own gradient tests are honoured.
"""

from __future__ import annotations

import itertools
import random
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gradbot.engine.jacobian.point import Point, look
from gradbot.engine.problem import Linearization, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCase:
    """One sample of one op. `func(*inputs)` gives whatever the op gives."""

    op: str
    index: int
    func: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    nondet_tol: float
    second_order: bool
    forward: bool

    @property
    def name(self) -> str:
        return f"{self.op}#{self.index}"

    @property
    def columns(self) -> int:
        return sum(each.numel() for each in self.inputs)


def ops(dtype: torch.dtype = torch.float64) -> list[Any]:
    """Every op of the three databases that torch checks the gradients of, for a dtype on the CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.autograd_function_db import autograd_function_db
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.custom_op_db import custom_op_db
    found = [*op_db, *autograd_function_db, *custom_op_db]
    return [op for op in found if op.supports_autograd and dtype in op.dtypes and not _expected_to_fail(op, dtype)]


def until(minutes: float, dtype: torch.dtype = torch.float64) -> Iterator[Any]:
    """The ops in an order that is mixed once and for all, for so many minutes: what was reached is a fair sample."""
    mixed = ops(dtype)
    random.Random(0).shuffle(mixed)
    end = time.perf_counter() + 60 * minutes
    for reached, op in enumerate(mixed):
        if time.perf_counter() > end:
            print(f"stopped after {minutes:g} minutes at {reached} of {len(mixed)} ops")
            return
        yield op


def op_name(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def _expected_to_fail(op: Any, dtype: torch.dtype) -> bool:
    """Whether torch expects its own gradient test of the op to fail, or skips it."""
    for decorator in op.get_decorators("TestBwdGradients", "test_fn_grad", "cpu", dtype, {}):
        name = getattr(decorator, "__qualname__", "")
        if name.startswith(("expectedFailure", "skip.<locals>")):
            return True
    return False


def cases(op: Any, *, dtype: torch.dtype = torch.float64, limit: int | None = None) -> Iterator[OpCase]:
    """The samples of an op that have a tensor to differentiate by, the first `limit` of them."""
    torch.manual_seed(0)
    random.seed(0)
    samples = op.sample_inputs("cpu", dtype, requires_grad=True)
    made = (case for index, sample in enumerate(samples) if (case := _case(op, index, sample)) is not None)
    yield from itertools.islice(made, limit)


def _case(op: Any, index: int, sample: Any) -> OpCase | None:
    slots = [sample.input, *sample.args, *sample.kwargs.values()]
    inputs = tuple(each for slot in slots for each in _flat(slot) if isinstance(each, Tensor) and each.requires_grad)
    if not inputs:
        return None

    # the databases of custom Functions and ops keep something else under this name
    wrapper = _plainly if "AutogradFunction" in op.name or "CustomOp" in op.name else op.gradcheck_wrapper

    def func(*tensors: Tensor) -> Any:
        waiting = iter(tensors)
        first = _filled(sample.input, waiting)
        args = [_filled(each, waiting) for each in sample.args]
        kwargs = {key: _filled(each, waiting) for key, each in sample.kwargs.items()}
        output = wrapper(op.get_op(), first, *args, **kwargs)
        process = sample.output_process_fn_grad
        return output if process is None else process(output)

    return OpCase(
        op=op_name(op),
        index=index,
        func=func,
        inputs=inputs,
        nondet_tol=op.gradcheck_nondet_tol,
        second_order=bool(op.supports_gradgrad),
        forward=bool(op.supports_forward_ad),
    )


def _plainly(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def _flat(slot: Any) -> list[Any]:
    return list(slot) if isinstance(slot, list | tuple) else [slot]


def _filled(slot: Any, waiting: Iterator[Tensor]) -> Any:
    if isinstance(slot, list | tuple) and all(isinstance(each, Tensor) for each in slot):
        return [next(waiting) if each.requires_grad else each for each in slot]
    return next(waiting) if isinstance(slot, Tensor) and slot.requires_grad else slot


def problem_of(func: Callable[..., Any], inputs: tuple[Tensor, ...]) -> Problem:
    """A problem of real tensors: complex ones as pairs, outputs that are not differentiable left out."""
    return _problem_and_outputs(func, inputs)[0]


def _problem_and_outputs(func: Callable[..., Any], inputs: tuple[Tensor, ...]) -> tuple[Problem, tuple[Tensor, ...]]:
    def restored(reals: tuple[Tensor, ...]) -> list[Tensor]:
        return [
            torch.view_as_complex(real) if each.is_complex() else real for real, each in zip(reals, inputs, strict=True)
        ]

    with torch.enable_grad():
        outputs = _outputs(func(*inputs))
    selected = [k for k, each in enumerate(outputs) if isinstance(each, Tensor) and each.requires_grad]

    def real_func(*reals: Tensor) -> tuple[Tensor, ...]:
        found = _outputs(func(*restored(reals)))
        return _real([found[k] for k in selected])

    reals = tuple(
        torch.view_as_real(each.detach().resolve_conj()).clone().requires_grad_() if each.is_complex() else each
        for each in inputs
    )
    return Problem(func=real_func, inputs=reals), _real([outputs[k] for k in selected])


def _real(outputs: list[Tensor]) -> tuple[Tensor, ...]:
    return tuple(torch.view_as_real(each.resolve_conj()) if each.is_complex() else each for each in outputs)


def point_of(func: Callable[..., Any], inputs: tuple[Tensor, ...]) -> Point:
    """`look(problem_of(...))`, of real inputs with the one evaluation that told which outputs are differentiable."""
    if any(each.is_complex() for each in inputs):
        return look(problem_of(func, inputs))
    problem, outputs = _problem_and_outputs(func, inputs)
    return look(problem, Linearization(inputs=inputs, outputs=outputs))


def _outputs(result: Any) -> tuple[Any, ...]:
    """The outputs, those inside lists too, as gradbot takes them apart."""
    return tuple(pytree.tree_leaves(result))


def second_order(problem: Problem, *, seed: int = 0) -> Problem:
    """The gradients of a problem as a problem of its own, in its inputs and the cotangents of its outputs."""
    from gradbot.engine.jacobian.gradients import stacked_gradients

    count = len(problem.inputs)
    generator = torch.Generator().manual_seed(seed)
    cotangents = tuple(
        (torch.rand(each.shape, dtype=each.dtype, generator=generator) * 2 - 1).requires_grad_()
        for each in problem.linearize().outputs
    )

    def gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            outputs = problem.func(*tensors[:count])
            found = torch.autograd.grad(outputs, tensors[:count], tensors[count:], create_graph=True, allow_unused=True)
        return tuple(
            torch.zeros_like(each) if gradient is None else gradient
            for gradient, each in zip(found, tensors, strict=False)
        )

    return Problem(
        func=gradients,
        inputs=(*problem.inputs, *cotangents),
        grad_mode=True,
        stacked=stacked_gradients(problem),
    )
