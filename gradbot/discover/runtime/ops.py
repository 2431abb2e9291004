"""The ops that the dispatcher of this process knows."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from gradbot.discover.runtime.code_places import place_of, shown_path, written_function
from gradbot.discover.static.ops import TORCH_NAMESPACES, op_id
from gradbot.model import Location, Offers, Target, TargetKind

_DEBUG = re.compile(r"^debug: registered at (?P<path>.+?):(?P<line>\d+)", re.MULTILINE)
_TORCH = str(Path(torch.__file__).parent)
_TORCH_LIBRARY = (f"{_TORCH}/library.py", f"{_TORCH}/_library/")


def op_names() -> frozenset[str]:
    """`ns::name.overload` of every op there is now, the overload left out where it is the default one."""
    return frozenset(torch._C._dispatch_get_all_op_names())


def find_op(name: str) -> Any:
    """The `OpOverload` of `ns::name` or `ns::name.overload`. Raises AttributeError or RuntimeError if there is none.

    `ns::name` of an op that has no default overload but a single named one means that.
    """
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base)
    if overload:
        return getattr(packet, overload)
    overloads = packet.overloads()
    return getattr(packet, "default" if "default" in overloads or len(overloads) != 1 else overloads[0])


def op_target(name: str, root: Path) -> Target | None:
    """What an op offers, and where; None for a name that has implementations but no schema."""
    try:
        op = find_op(name)
        schema = str(op._schema)
    except (AttributeError, RuntimeError):
        return None
    definition = _definition(name)
    places = _places(name, definition, root)
    home = places.get("define")
    return Target(
        id=op_id(name),
        kind=TargetKind.OP,
        package=_module_at(home, root).partition(".")[0],
        module=_module_at(home, root),
        qualname=op_id(name).partition("::")[2],
        location=home,
        methods=places,
        offers=_offers(name, definition),
        schema=schema,
        seen="runtime",
    )


def is_torchs_own(name: str) -> bool:
    """Whether torch itself registered an op: by its namespace, or by where it was registered."""
    if name.partition("::")[0] in TORCH_NAMESPACES:
        return True
    definition = _definition(name)
    if definition is not None:
        return place_file(definition).startswith(_TORCH)
    return registered_at(name)[0].startswith(_TORCH)


def place_file(definition: Any) -> str:
    """The file of the function that a custom op was made of."""
    code = getattr(written_function(getattr(definition, "_init_fn", None)), "__code__", None)
    return code.co_filename if code is not None else ""


def registered_at(name: str) -> tuple[str, int]:
    """File and line that the dispatcher keeps of an op's schema; for C++ as the compiler saw it.

    ("", 0) if it keeps none, or only that of torch.library itself, which then was called from somewhere.
    """
    try:
        match = _DEBUG.search(torch._C._dispatch_dump(name))
    except RuntimeError:
        match = None
    known = match is not None and not match["path"].startswith(_TORCH_LIBRARY)
    return (match["path"], int(match["line"])) if match is not None and known else ("", 0)


def home_file(name: str) -> str:
    """The file that an op belongs to: where its function stands, else where it was registered."""
    definition = _definition(name)
    return (place_file(definition) if definition is not None else "") or registered_at(name)[0]


def _definition(name: str) -> Any:
    """The CustomOpDef behind an op; None for ops that were registered in another way."""
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:
        return None
    return OPDEFS.get(name)


def _has(name: str, *keys: str) -> bool:
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)


def _offers(name: str, definition: Any) -> Offers:
    composite = _has(name, "CompositeImplicitAutograd")
    if definition is not None:
        # A custom op has an Autograd kernel in any case: one that raises where no formula was registered.
        formula = getattr(definition, "_backward_fn", None) is not None
        fake = getattr(definition, "_abstract_fn", None) is not None
    else:
        formula = composite or _has(name, "Autograd", "AutogradCPU", "AutogradCUDA", "AutogradOther", "AutogradXPU")
        fake = composite or _has(name, "Meta", "CompositeExplicitAutograd") or _has_registered_fake(name)
    vmap = "rule" if _has(name, "FuncTorchBatched") else "generated" if composite else "none"
    return Offers(backward=formula, autograd_formula=formula, fake_kernel=fake, vmap=vmap)


def _has_registered_fake(name: str) -> bool:
    try:
        from torch._library.simple_registry import singleton

        return singleton.find(name).fake_impl.kernel is not None
    except (ImportError, AttributeError):
        return False


def _places(name: str, definition: Any, root: Path) -> dict[str, Location]:
    attributes = {
        "define": "_init_fn",
        "impl": "_init_fn",
        "autograd": "_backward_fn",
        "fake": "_abstract_fn",
        "vmap": "_vmap_fn",
    }
    if definition is None:
        path, line = registered_at(name)
        return {"define": Location(path=_shown(path, root), line=line, symbol=name)} if path else {}
    found = {part: place_of(getattr(definition, attribute, None), root) for part, attribute in attributes.items()}
    return {part: place for part, place in found.items() if place is not None}


def _shown(path: str, root: Path) -> str:
    """C++ places are what the compiler was given: relative ones are left as they are."""
    return shown_path(path, root) if Path(path).is_absolute() else path


def _module_at(place: Location | None, root: Path) -> str:
    """The loaded module whose file this is; "" for C++."""
    if place is None or not place.path.endswith(".py"):
        return ""
    path = str(root / place.path)
    return next((name for name, module in _files() if module == path and name != "__main__"), "")


def _files() -> Iterator[tuple[str, str]]:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield name, file
