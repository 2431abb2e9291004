"""From what a user names as a target to what is called: `Class.apply`, an op's overload, a function, a module."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd import Function

from gradbot.discover.runtime.code_places import place_of
from gradbot.discover.runtime.functions import function_id, function_target, live_functions
from gradbot.discover.runtime.imports import ImportFailedError, import_by_name
from gradbot.discover.runtime.ops import find_op, op_target
from gradbot.discover.static.ops import op_id
from gradbot.inputs.source import InputsError
from gradbot.model import Target, TargetKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A live target: its id, what is called, and the class or overload where it is one."""

    id: str
    func: Callable[..., Any]
    function_class: type[Function] | None = None
    op: Any = None

    def target(self, root: Path) -> Target:
        """What it offers, as discovery says it."""
        if self.function_class is not None:
            return function_target(self.function_class, root)
        if self.op is not None:
            found = op_target(self.op.name(), root)
            assert found is not None
            return found
        module, _, qualname = self.id.partition(":")
        place = place_of(getattr(self.func, "forward", self.func), root)
        package = module.partition(".")[0]
        return Target(
            id=self.id,
            kind=TargetKind.CALLABLE,
            package=package,
            module=module,
            qualname=qualname,
            location=place,
            seen="runtime",
        )


def subject_of(target: Any, root: Path) -> Subject:
    """The live target that an object or a name means. Raises `InputsError`."""
    if isinstance(target, str):
        return _of_name(target, root)
    owner = getattr(target, "__self__", None)
    if getattr(target, "__name__", "") == "apply" and isinstance(owner, type) and issubclass(owner, Function):
        target = owner
    if isinstance(target, type) and issubclass(target, Function):
        return Subject(id=function_id(target), func=target.apply, function_class=target)
    op = _overload(target)
    if op is not None:
        return Subject(id=op_id(op.name()), func=op, op=op)
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        return Subject(id=_callable_id(target), func=functools.partial(_call_module, target))
    if callable(target):
        return Subject(id=_callable_id(target), func=target)
    raise InputsError(
        f"a target must be a Function, an op, a function, a module or the name of one, not {target!r:.80}"
    )


def _of_name(name: str, root: Path) -> Subject:
    if "::" in name:
        try:
            op = find_op(name)
        except (AttributeError, RuntimeError):
            raise InputsError(
                f"no op {name!r} is registered; import what registers it in the file of the cases"
            ) from None
        return Subject(id=op_id(op.name()), func=op, op=op)
    return subject_of(resolve(name, root), root)


def _overload(target: Any) -> Any:
    """The overload of an op given as an overload, a packet, or what `custom_op` returns; None for others."""
    if isinstance(target, torch._ops.OpOverload):
        return target
    if isinstance(target, torch._ops.OpOverloadPacket):
        overloads: list[str] = target.overloads()  # type: ignore[no-untyped-call]
        return getattr(target, "default" if "default" in overloads or not overloads else overloads[0])
    return getattr(target, "_opoverload", None)


def resolve(name: str, root: Path) -> Any:
    """The object `pkg.mod:Outer.name` (or `pkg.mod.name`) means. Raises `InputsError`."""
    module, separator, path = name.partition(":")
    if not separator:
        module, _, path = name.rpartition(".")
    if not module or not path:
        raise InputsError(f"cannot tell what {name!r} means: write it as pkg.mod:Name or ns::op")
    try:
        found: Any = import_by_name(module, root)
    except ImportFailedError as error:
        raise InputsError(f"{module} cannot be imported: {error}") from None
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            return _made_elsewhere(name, module, path)
    return found


def _made_elsewhere(name: str, module: str, path: str) -> Any:
    """A Function that is no attribute of its module: made in a function, or by a call, and alive."""
    for cls in live_functions(lambda each: each == module):
        if function_id(cls) == f"{module}:{path}":
            return cls
    hint = "; it is made in a function: give @gradbot.cases the class itself" if "<locals>" in path else ""
    raise InputsError(f"{module} has no {path!r}, which the target {name!r} needs{hint}")


def _callable_id(target: Any) -> str:
    while isinstance(target, functools.partial):
        target = target.func
    named = target if hasattr(target, "__qualname__") else type(target)
    return f"{named.__module__}:{named.__qualname__}"


def _call_module(cls: type[torch.nn.Module], *args: Any, **kwargs: Any) -> Any:
    """Call a module: the first argument where that is one of the class, else one made without arguments."""
    if args and isinstance(args[0], cls):
        return args[0](*args[1:], **kwargs)
    return cls()(*args, **kwargs)
