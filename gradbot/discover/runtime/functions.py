"""The autograd.Function subclasses that exist in this process."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch.autograd import Function
from torch.autograd import function as torch_function

from gradbot.discover.runtime.code_places import place_of
from gradbot.model import Location, Offers, Target, TargetKind

_METHODS = ("forward", "backward", "jvp", "vmap", "setup_context")


def live_functions(belongs: Callable[[str], bool]) -> Iterator[type[Function]]:
    """Every subclass with a forward whose module belongs, each id once."""
    seen: set[str] = set()
    for cls in _subclasses(Function):
        if belongs(cls.__module__) and _own(cls, "forward") is not None and function_id(cls) not in seen:
            seen.add(function_id(cls))
            yield cls


def _subclasses(cls: type) -> Iterator[type]:
    waiting: list[type] = [cls]
    seen = {cls}
    while waiting:
        subclasses: list[type] = type.__subclasses__(waiting.pop())
        for each in subclasses:
            if each not in seen:
                seen.add(each)
                waiting.append(each)
                yield each


def function_id(cls: type) -> str:
    """`pkg.mod:Outer.Name`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def is_once_differentiable(cls: type) -> bool:
    """Whether the backward is wrapped by torch's `once_differentiable`: code of torch's around the user's."""
    backward = _own(cls, "backward") or _own(cls, "vjp")
    while backward is not None and hasattr(backward, "__wrapped__"):
        code = getattr(backward, "__code__", None)
        if code is not None and code.co_filename == torch_function.__file__:
            return True
        backward = backward.__wrapped__
    return False


def _own(cls: type, name: str) -> Any:
    """A method that is not `Function`'s own; None where it is."""
    method = inspect.getattr_static(cls, name, None)
    if method is None or method is inspect.getattr_static(Function, name, None):
        return None
    found = getattr(cls, name, None)
    return None if found is getattr(Function, name, None) else found


def function_target(cls: type, root: Path) -> Target:
    """What a live class offers, and where."""
    methods = {name: _own(cls, name) for name in _METHODS}
    methods["backward"] = methods["backward"] or _own(cls, "vjp")
    places = {name: place for name, method in methods.items() if (place := _place(method, root)) is not None}
    generated = bool(getattr(cls, "generate_vmap_rule", False))
    return Target(
        id=function_id(cls),
        kind=TargetKind.FUNCTION,
        package=cls.__module__.partition(".")[0],
        module=cls.__module__,
        qualname=cls.__qualname__,
        location=_class_place(cls, root) or places.get("forward"),
        methods=places,
        offers=Offers(
            backward=methods["backward"] is not None,
            jvp=methods["jvp"] is not None,
            setup_context=methods["setup_context"] is not None,
            vmap="rule" if methods["vmap"] is not None else "generated" if generated else "none",
            once_differentiable=is_once_differentiable(cls),
        ),
        seen="runtime",
    )


def _place(method: Any, root: Path) -> Location | None:
    return place_of(method, root) if callable(method) else None


def _class_place(cls: type, root: Path) -> Location | None:
    """The class statement, where Python keeps it (3.13 and later)."""
    line = vars(cls).get("__firstlineno__")
    module = sys.modules.get(cls.__module__)
    forward = place_of(_own(cls, "forward"), root)
    if not isinstance(line, int) or module is None or forward is None:
        return None
    return Location(path=forward.path, line=line, symbol=cls.__qualname__)


def aliases(targets: dict[int, str], belongs: Callable[[str], bool]) -> dict[str, list[str]]:
    """Other names of live objects (id of the object -> id of its target) in modules that belong."""
    found: dict[str, list[str]] = {}
    for name, module in sorted(sys.modules.items()):
        if module is None or not belongs(name):
            continue
        for attribute, value in list(vars(module).items()):
            target = targets.get(id(value))
            if target is not None and f"{name}:{attribute}" != target:
                found.setdefault(target, []).append(f"{name}:{attribute}")
    return found
