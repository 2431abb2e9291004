"""Why a double backward is silently wrong: what the backward of a custom Function uses and autograd cannot see.

A forward runs without grad mode, so that only its inputs and outputs, saved with `save_for_backward`, come back with a
history. Anything else that depends on the inputs is a constant to the second derivative: intermediate tensors that were
saved, tensors and numbers kept as attributes of ctx, and whatever the backward itself computes without grad mode.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from gradbot.engine.directional import Point, problem_at
from gradbot.engine.problem import Linearization, Problem
from gradbot.model import Capability, CheckResult, Diagnosis, Location, Outcome

MOVE = 2.0**-6

DETACHING = {
    "no_grad": "runs under no_grad",
    "inference_mode": "runs under inference_mode",
    "detach": "detaches",
    "item": "reads a number out of a tensor",
    "numpy": "leaves torch for NumPy",
    "tolist": "leaves torch for lists",
    "data": "reads .data",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that autograd cannot see.

    `kind`: "once_differentiable", "saved_detached" (a saved tensor that is neither input nor output), "ctx_attribute"
    (a tensor or number kept on ctx) or "no_grad" (the backward itself loses the history). `name` is the tensor,
    attribute or expression as the source has it.
    """

    kind: str
    name: str
    function: str
    location: Location | None = None


def causes(problem: Problem, seed: int = 0) -> tuple[Cause, ...]:
    """What the custom Functions on the graph of `problem` hide from a second backward, surest first."""
    here = problem.linearize()
    moved = Point.of(problem).moved(
        tuple(_away(each.numel(), index, seed) for index, each in enumerate(problem.inputs)), MOVE
    )
    with problem_at(problem, moved) as other:
        there = other.linearize()
        found: list[Cause] = []
        for node, twin in zip(_custom_nodes(here), _custom_nodes(there), strict=False):
            function = type(node)._forward_cls  # type: ignore[attr-defined]
            if is_once_differentiable(function):
                return (_cause("once_differentiable", "backward", function, "backward"),)
            found += _saved(node, twin, function)
            found += _attributes(node, twin, function)
            found += _in_source(function)
    return tuple(dict.fromkeys(found))


def explained(result: CheckResult, problem: Problem, seed: int = 0) -> CheckResult:
    """A failed double backward with the surest cause as the diagnosis, and the place, of each of its findings.

    What is marked once_differentiable says that it has no second derivative: unsupported, not wrong or undecided.
    """
    if result.outcome not in (Outcome.FAILED, Outcome.INCONCLUSIVE):
        return result
    try:
        found = causes(problem, seed)
    except (RuntimeError, ValueError):
        return result
    if not found:
        return result
    first = found[0]
    if first.kind == "once_differentiable":
        return replace(
            result,
            outcome=Outcome.UNSUPPORTED,
            capability=Capability.UNSUPPORTED,
            findings=(),
            reason="once_differentiable",
            details={"function": first.function},
        )
    if result.outcome is Outcome.INCONCLUSIVE:
        return result
    others = ", ".join(each.name for each in found[1:])
    diagnosis = Diagnosis(
        pattern=f"second_{first.kind}", parameters={"name": first.name, "function": first.function, "others": others}
    )
    return replace(
        result,
        findings=tuple(
            replace(each, diagnosis=diagnosis, location=first.location or each.location)
            if each.kind == "jacobian_mismatch_double_backward"
            else each
            for each in result.findings
        ),
    )


def refuses_twice(gradient: Tensor) -> bool:
    """Whether the graph of a gradient holds the node that `once_differentiable` puts there."""
    pending: list[Any] = [gradient.grad_fn]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name().rpartition("::")[2] == "Error":
            return True
        pending += [following for following, _ in node.next_functions]
    return False


def is_once_differentiable(function: type) -> bool:
    """Whether a Function's backward is wrapped by `torch.autograd.function.once_differentiable`."""
    backward = getattr(function, "backward", None)
    code = getattr(backward, "__code__", None)
    return (
        code is not None
        and hasattr(backward, "__wrapped__")
        and code.co_filename.replace("\\", "/").endswith("torch/autograd/function.py")
    )


def _away(count: int, index: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + index)
    return torch.rand(count, generator=generator, dtype=torch.float64) + 0.5


def _custom_nodes(linearization: Linearization) -> list[BackwardCFunction]:
    """Backward nodes of custom Functions, each once, outputs first."""
    seen: set[int] = set()
    found: list[BackwardCFunction] = []
    stack: list[Any] = [each.grad_fn for each in reversed(linearization.outputs)]
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, BackwardCFunction):
            found.append(node)
        stack += [each for each, _ in reversed(node.next_functions)]
    return found


def _saved(node: Any, twin: Any, function: type) -> Iterator[Cause]:
    """Saved tensors without a history whose values move with the inputs."""
    names = _saved_names(function)
    for position, (mine, other) in enumerate(zip(node.saved_tensors, twin.saved_tensors, strict=False)):
        if mine is None or mine.requires_grad or not _changed(mine, other):
            continue
        name, line = names[position] if position < len(names) else (f"saved tensor {position}", 0)
        yield _cause("saved_detached", name, function, "setup_context", "forward", line=line)


def _attributes(node: Any, twin: Any, function: type) -> Iterator[Cause]:
    """Tensors and numbers on ctx that move with the inputs and have no history."""
    others = vars(twin)
    for name, value in vars(node).items():
        for mine, other in zip(_numbers(value), _numbers(others.get(name)), strict=False):
            detached = not (isinstance(mine, Tensor) and mine.requires_grad)
            if detached and _changed(mine, other):
                line = _line_of(function, name)
                yield _cause("ctx_attribute", f"ctx.{name}", function, "setup_context", "forward", line=line)
                break


def _numbers(value: Any) -> list[Any]:
    if isinstance(value, (Tensor, float)):
        return [value]
    if isinstance(value, (tuple, list)):
        return [each for each in value if isinstance(each, (Tensor, float))]
    if isinstance(value, Mapping):
        return [each for each in value.values() if isinstance(each, (Tensor, float))]
    return []


def _changed(mine: Any, other: Any) -> bool:
    if isinstance(mine, Tensor) and isinstance(other, Tensor):
        inexact = mine.is_floating_point() or mine.is_complex()
        return inexact and (mine.shape != other.shape or not torch.equal(mine, other))
    return isinstance(mine, float) and isinstance(other, float) and mine != other


def _in_source(function: type) -> Iterator[Cause]:
    """Expressions of the backward that lose the history."""
    for method in ("backward", "vjp"):
        for node in _tree(function, method):
            name = _detaching(node)
            if name:
                yield _cause("no_grad", ast.unparse(node)[:80], function, method, line=getattr(node, "lineno", 0))


def _detaching(node: ast.AST) -> str:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr if node.func.attr in DETACHING and node.func.attr != "data" else ""
    if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Load):
        return "data"
    return ""


def _saved_names(function: type) -> list[tuple[str, int]]:
    """The arguments of `save_for_backward` as the source has them, with their lines."""
    for method in ("setup_context", "forward"):
        for node in _tree(function, method):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr == "save_for_backward" and not any(isinstance(each, ast.Starred) for each in node.args):
                return [(ast.unparse(each), each.lineno) for each in node.args]
    return []


def _assigns(node: ast.AST, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(each, ast.Attribute) and each.attr == name for each in targets)


def _line_of(function: type, name: str) -> int:
    for method in ("setup_context", "forward"):
        for node in _tree(function, method):
            if _assigns(node, name):
                return int(getattr(node, "lineno", 0))
    return 0


def _tree(function: type, method: str) -> Iterator[ast.AST]:
    """The nodes of a method's source, of every class that has it, with lines of its file; nothing without a source."""
    for own in _written(function, method):
        try:
            lines, first = inspect.getsourcelines(own)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError):
            continue
        ast.increment_lineno(tree, first - 1)
        yield from ast.walk(tree)


def _written(function: type, method: str) -> Iterator[Any]:
    """What the user wrote as a method: of the class and its bases, or given to `register_autograd` of an op.

    torch makes a Function for such an op, whose methods hold the user's functions in a closure.
    """
    for base in function.__mro__:
        own = vars(base).get(method)
        plain = getattr(own, "__func__", own)
        if inspect.isfunction(plain) and not base.__module__.startswith("torch.") and not _is_torch(plain):
            yield inspect.unwrap(plain)
    for each in ("forward", "backward"):
        made = getattr(function, each, None)
        for cell in getattr(made, "__closure__", None) or ():
            registered = {
                "setup_context": getattr(cell.cell_contents, "_setup_context_fn", None),
                "backward": getattr(cell.cell_contents, "_backward_fn", None),
            }.get(method)
            if inspect.isfunction(registered):
                yield registered
                return


def _is_torch(function: Any) -> bool:
    return str(function.__globals__.get("__name__", "")).startswith("torch.") and not hasattr(function, "__wrapped__")


def _cause(kind: str, name: str, function: type, *methods: str, line: int = 0) -> Cause:
    for method in methods:
        for own in _written(function, method):
            code = own.__code__
            symbol = own.__qualname__
            location = Location(path=code.co_filename, line=line or code.co_firstlineno, symbol=symbol)
            return Cause(kind=kind, name=name, function=function.__qualname__, location=location)
    return Cause(kind=kind, name=name, function=function.__qualname__)
