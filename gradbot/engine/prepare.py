"""From a user's function and arguments to a `Problem`: which tensors are checked, which outputs count, and how the
function must be called so that its derivatives can be measured.

What a function needs is found out by calling it, never asked: whether it writes in place, draws random numbers,
returns other values without grad mode, or captures its inputs by closure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.jacobian.point import OutputsChangedError
from gradbot.engine.names import named_arguments
from gradbot.engine.observe import UserCodeError, equal, first_call, is_inexact
from gradbot.engine.problem import Problem
from gradbot.engine.references import References
from gradbot.engine.representation import Representation, represent, to_real
from gradbot.engine.subject import Subject
from gradbot.engine.trees import leaves
from gradbot.model import Note

__all__ = ["NothingToCheckError", "Prepared", "UserCodeError", "involved_tensors", "prepare", "under_seed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What every check starts from. `outputs` are all leaves of the first call's result.

    `assumed`: no tensor was marked as requiring grad, so that every floating-point one is taken to be checked.
    `mutated` names inputs that the function changed, though it may not. `buffers_changed` names buffers.
    `call_seconds` is about what one call with its backward takes.
    """

    subject: Subject
    problem: Problem
    representations: tuple[Representation, ...]
    outputs: tuple[Any, ...]
    notes: tuple[Note, ...] = ()
    assumed: bool = False
    mutated: tuple[str, ...] = ()
    buffers_changed: tuple[str, ...] = ()
    arguments_changed: tuple[str, ...] = ()
    call_seconds: float = 0.0


class NothingToCheckError(Exception):
    """No argument is a floating-point or complex tensor."""


def prepare(
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    seed: int,
    references: References | None = None,
) -> Prepared:
    """Finds out how to differentiate `func(*args, **kwargs)`, between the projection and invariant of `references`.

    Raises `NothingToCheckError` where no tensor can be checked and `UserCodeError` where the function raises.
    """
    subject, notes, assumed = _collect(func, tuple(args), dict(kwargs))
    if references is not None:
        subject = subject.changed(projection=references.projection, invariant=references.invariant)
    subject, outputs, observed, more = first_call(subject, seed)
    tensors = tuple(each for each in outputs if isinstance(each, Tensor))
    selected = tuple(
        position
        for position, each in enumerate(outputs)
        if isinstance(each, Tensor) and is_inexact(each) and each.requires_grad
    )
    names = _output_names(outputs, selected)
    subject = subject.changed(selected=selected, output_names=names)
    representations = tuple(represent(each) for each in subject.inputs)
    problem = _problem(subject, representations, outputs)
    captured = _captures_inputs(subject) if selected else False
    if captured:
        notes = (*notes, Note(code="captured_inputs"))
    start = time.perf_counter()
    grad_mode = _needs_grad_mode(subject, tensors)
    forward_seconds = time.perf_counter() - start
    return Prepared(
        subject=subject,
        problem=replace(problem, in_place=captured, grad_mode=grad_mode),
        representations=representations,
        outputs=outputs,
        notes=(*notes, *more),
        assumed=assumed,
        mutated=observed.inputs,
        buffers_changed=observed.buffers,
        arguments_changed=observed.arguments,
        call_seconds=3 * forward_seconds,  # a backward costs about two forwards
    )


def under_seed(prepared: Prepared, seed: int) -> Problem:
    """The problem of a function that draws random numbers, with others than it was prepared with."""
    subject, problem = prepared.subject.changed(seed=seed), prepared.problem
    again = _problem(subject, prepared.representations, prepared.outputs)
    return replace(again, in_place=problem.in_place, grad_mode=problem.grad_mode)


def involved_tensors(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Every tensor that a call may reach and change: arguments, parameters and buffers, each once."""
    found: dict[int, Tensor] = {}
    for _, leaf in leaves((tuple(args), dict(kwargs))):
        if isinstance(leaf, Tensor):
            found[id(leaf)] = leaf
    for module in _modules(func, args, kwargs):
        found.update({id(each): each for each in (*module.parameters(), *module.buffers())})
    return list(found.values())


def _modules(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[torch.nn.Module, ...]:
    candidates = [func, getattr(func, "__self__", None), getattr(func, "func", None)]
    candidates += [leaf for _, leaf in leaves((tuple(args), dict(kwargs)))]
    found = {id(each): each for each in candidates if isinstance(each, torch.nn.Module)}
    return tuple(found.values())


def _collect(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Subject, tuple[Note, ...], bool]:
    named: dict[int, tuple[str, Tensor]] = {}
    for name, leaf in named_arguments(func, args, kwargs):
        if is_inexact(leaf):
            named.setdefault(id(leaf), (name, leaf))  # type: ignore[arg-type]
    modules = _modules(func, args, kwargs)
    for module in modules:
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and is_inexact(parameter):
                named.setdefault(id(parameter), (name, parameter))
    if not named:
        raise NothingToCheckError
    checked = [(name, each) for name, each in named.values() if each.requires_grad]
    assumed = not checked
    notes: list[Note] = [Note(code="requires_grad_assumed")] if assumed else []
    checked = checked or list(named.values())
    inputs = []
    for index, (_, each) in enumerate(checked):
        leaf, densified = _as_leaf(each)
        inputs.append(leaf)
        if densified:
            notes.append(Note(code="densified", details={"input": index}))
    subject = Subject(
        func=func,
        args=args,
        kwargs=kwargs,
        inputs=tuple(inputs),
        originals=tuple(each for _, each in checked),
        input_names=tuple(name for name, _ in checked),
        modules=modules,
    )
    return subject, tuple(notes), assumed


def _as_leaf(tensor: Tensor) -> tuple[Tensor, bool]:
    """The tensor as a leaf that requires grad, and whether it had to be copied because it overlaps itself."""
    if tensor.layout is torch.strided and not tensor.is_mkldnn and torch._debug_has_internal_overlap(tensor) == 1:
        return tensor.detach().clone(memory_format=torch.contiguous_format).requires_grad_(), True
    if tensor.is_leaf and tensor.requires_grad:
        return tensor, False
    return tensor.detach().requires_grad_(), False


def _problem(subject: Subject, representations: tuple[Representation, ...], outputs: tuple[Any, ...]) -> Problem:
    dtypes = [outputs[position].dtype for position in subject.selected]

    def func(*reals: Tensor) -> tuple[Tensor, ...]:
        tensors = [form.restore(real) for form, real in zip(representations, reals, strict=True)]
        result = subject.call(tensors)
        if len(result) != len(outputs):
            raise OutputsChangedError(f"{len(outputs)} outputs at the inputs, {len(result)} near them")
        selected = [result[position] for position in subject.selected]
        for before, now in zip(dtypes, selected, strict=True):
            if now.dtype != before:
                raise OutputsChangedError(f"an output of {before} at the inputs, of {now.dtype} near them")
        return tuple(to_real(each) for each in selected)

    return Problem(
        func=func,
        inputs=tuple(each.real for each in representations),
        input_names=subject.input_names,
        output_names=subject.output_names,
        seed=subject.seed,
        devices=tuple({each.device for each in subject.inputs}),
    )


def _output_names(outputs: Sequence[Any], selected: Sequence[int]) -> tuple[str, ...]:
    if len(outputs) == 1:
        return ("output",)
    return tuple(f"output {position}" for position in selected)


def _captures_inputs(subject: Subject) -> bool:
    """Whether the function reads the inputs' own memory: the graph at copies reaches it, or copies will not do."""
    try:
        outputs = subject.graph(subject.copies())
    except Exception:  # noqa: BLE001 - it worked on the inputs themselves: on views of larger memory, for example
        return True
    if any(_part_of_more(each) for each in subject.inputs):
        usual = subject.graph()
        if not all(equal(a.detach(), b.detach()) for a, b in zip(outputs, usual, strict=True)):
            return True  # it reads memory around its inputs, which copies do not have
    if _has_opaque_argument(subject) and _follows_memory(subject):
        return True
    try:
        reached = torch.autograd.graph.get_gradient_edge  # a leaf's accumulator is its edge
        wanted = {reached(each).node for each in subject.inputs}
    except RuntimeError:  # no leaf with an accumulator of its own, so that nothing can reach it
        return False
    seen: set[Any] = set()
    stack = [each.grad_fn for each in outputs if each.grad_fn is not None]
    while stack:
        node = stack.pop()
        if node in wanted:
            return True
        if node in seen:
            continue
        seen.add(node)
        stack += [following for following, _ in node.next_functions if following is not None]
    return False


def _has_opaque_argument(subject: Subject) -> bool:
    plain = (Tensor, str, int, float, complex, type(None), torch.dtype, torch.device, torch.layout, type)
    return any(not isinstance(leaf, plain) for _, leaf in leaves((subject.args, dict(subject.kwargs))))


def _follows_memory(subject: Subject) -> bool:
    """Whether the outputs at copies change with the inputs' own memory: a callable argument holds the inputs too.

    No graph shows that where a custom Function calls it without grad mode.
    """
    inputs = [each.detach() for each in subject.inputs if each.layout is torch.strided and not each.is_mkldnn]
    kept = [each.clone() for each in inputs]
    copies = [each.detach().clone() for each in subject.inputs]
    try:
        before = subject.outputs(copies)
        again = subject.outputs(copies)
        for each in inputs:
            each.mul_(1 + 2.0**-10).add_(2.0**-14)
        after = subject.outputs(copies)
    except Exception:  # noqa: BLE001 - what cannot be looked at is taken for usual
        return False
    finally:
        for each, values in zip(inputs, kept, strict=True):
            each.copy_(values)
    same = all(equal(a.detach(), b.detach()) for a, b in zip(before, again, strict=True))
    return same and not all(equal(a.detach(), b.detach()) for a, b in zip(before, after, strict=True))


def _part_of_more(tensor: Tensor) -> bool:
    strided = tensor.layout is torch.strided and not tensor.is_mkldnn
    return strided and tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size()


def _needs_grad_mode(subject: Subject, graph_outputs: Sequence[Tensor]) -> bool:
    """Whether the function returns other values, or raises, without grad mode."""
    try:
        with torch.no_grad():
            plain = subject.call([each.detach().clone() for each in subject.inputs])
    except Exception:  # noqa: BLE001 - a function that refuses to run without grad mode is run with it
        return True
    values = [each for each in plain if isinstance(each, Tensor)]
    if len(values) != len(graph_outputs):
        return True
    return not all(equal(a.detach(), b.detach()) for a, b in zip(values, graph_outputs, strict=True))
