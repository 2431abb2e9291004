"""Subclasses of torch.autograd.Function in parsed files, however they are made, and what each offers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gradbot.discover.static.names import External, Meaning, Resolver, Value
from gradbot.discover.static.syntax import (
    Assigned,
    Binding,
    ClassDefinition,
    FunctionDefinition,
    FunctionNode,
    ParsedModule,
    Scope,
)
from gradbot.model import Location, Offers, Target, TargetKind

FUNCTION_NAMES = frozenset(
    {
        "torch.autograd.Function",
        "torch.autograd.function.Function",
        "torch.autograd.function._SingleLevelFunction",
        "torch.autograd.function.InplaceFunction",
        "torch.autograd.function.NestedIOFunction",
    }
)
METHODS = ("forward", "backward", "jvp", "vmap", "setup_context")
_ONCE = frozenset({"torch.autograd.function.once_differentiable", "torch.autograd.once_differentiable"})

Locate = Callable[[Path, ast.AST, str], Location]
"""A node in a file, with the symbol that stands there, as a location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Method:
    location: Location
    once_differentiable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Class:
    """What a class and its bases have.

    `is_function` is None where a base is not known. A method that is None is taken away from what a base offers.
    `open` says that only running the code tells which members there are.
    """

    is_function: bool | None
    methods: Mapping[str, _Method | None] = field(default_factory=dict)
    generates_vmap: bool | None = None
    open: bool = False


def function_targets(module: ParsedModule, package: str, resolver: Resolver, locate: Locate) -> Iterator[Target]:
    """Every autograd.Function that a module makes and that has a forward."""
    finder = _Finder(resolver, locate)
    for definition in module.classes:
        found = finder.read_class(definition)
        if _counts(found):
            yield _target(definition.module, definition.qualname, package, found, finder.place(definition))
    for node, scope in module.calls:
        made = _made_by_call(node, scope, resolver)
        if made is not None:
            found = finder.read_made(made, scope)
            if found.is_function and (found.open or found.methods.get("forward")):
                qualname = made.name or _bound_name(node, module) or f"<type at line {node.lineno}>"
                yield _target(module.name, qualname, package, found, locate(module.path, node, qualname))


def _counts(found: _Class) -> bool:
    # A class of an unknown base that has both methods in the shape of a Function's is taken for one.
    has_both = bool(found.methods.get("forward") and found.methods.get("backward"))
    return bool(found.is_function and found.methods.get("forward")) or (found.is_function is None and has_both)


def _target(module: str, qualname: str, package: str, found: _Class, location: Location) -> Target:
    methods = {name: method for name in METHODS if (method := found.methods.get(name)) is not None}
    return Target(
        id=f"{module}:{qualname}",
        kind=TargetKind.FUNCTION,
        package=package,
        module=module,
        qualname=qualname,
        location=location,
        methods={name: method.location for name, method in methods.items()},
        offers=Offers() if found.open else _offers(methods, bool(found.generates_vmap)),
    )


def _offers(methods: Mapping[str, _Method], generates_vmap: bool) -> Offers:
    return Offers(
        backward="backward" in methods,
        jvp="jvp" in methods,
        setup_context="setup_context" in methods,
        vmap="rule" if "vmap" in methods else "generated" if generates_vmap else "none",
        once_differentiable="backward" in methods and methods["backward"].once_differentiable,
    )


class _Finder:
    def __init__(self, resolver: Resolver, locate: Locate) -> None:
        self._resolver = resolver
        self._locate = locate
        self._known: dict[int, _Class] = {}

    def place(self, definition: ClassDefinition) -> Location:
        return self._locate(definition.path, definition.node, definition.qualname)

    def read_class(self, definition: ClassDefinition) -> _Class:
        key = id(definition)
        if key not in self._known:
            self._known[key] = _Class(is_function=False)  # a cycle of bases ends here
            own = _Class(
                is_function=None if self._looks_like_function(definition) else False,
                methods=dict(self._members(definition)),
                generates_vmap=_flag(definition.body.bindings.get("generate_vmap_rule", [])),
            )
            self._known[key] = _merged(own, self._bases(definition.node.bases, definition.scope))
        return self._known[key]

    def read_made(self, made: _Made, scope: Scope) -> _Class:
        """A class that a call makes."""
        methods = {
            "backward" if name == "vjp" else name: self._method_of_value(name, value, scope)
            for name, value in made.members.items()
            if name in (*METHODS, "vjp")
        }
        flag = made.members.get("generate_vmap_rule")
        generates = flag.value is True if isinstance(flag, ast.Constant) else None
        own = _Class(is_function=False, methods=methods, generates_vmap=generates, open=made.open)
        return _merged(own, self._bases(made.bases, scope))

    def _bases(self, nodes: Iterable[ast.expr], scope: Scope) -> list[_Class]:
        found = []
        for node in nodes:
            meanings = self._resolver.resolve(node.value if isinstance(node, ast.Starred) else node, scope)
            found.append(_either([self._read_meaning(each) for each in meanings]))
        return found

    def _read_meaning(self, meaning: Meaning) -> _Class:
        if isinstance(meaning, ClassDefinition):
            return self.read_class(meaning)
        if isinstance(meaning, External):
            if meaning.dotted in FUNCTION_NAMES:
                return _Class(is_function=True)
            known = meaning.dotted.startswith("torch.") or "." not in meaning.dotted
            return _Class(is_function=False if known else None)
        if isinstance(meaning, Value) and isinstance(meaning.node, ast.Call):
            return self._read_call(meaning.node, meaning.scope)
        return _Class(is_function=None)

    def _read_call(self, node: ast.Call, scope: Scope) -> _Class:
        key = id(node)
        if key not in self._known:
            self._known[key] = _Class(is_function=False)  # `cls = type(name, (cls, Mixin), {})` ends here
            made = _made_by_call(node, scope, self._resolver)
            self._known[key] = _Class(is_function=None) if made is None else self.read_made(made, scope)
        return self._known[key]

    def _members(self, definition: ClassDefinition) -> Iterator[tuple[str, _Method | None]]:
        for name in (*METHODS, "vjp"):
            for binding in definition.body.bindings.get(name, []):
                method = self._method(binding) if isinstance(binding, FunctionDefinition) else None
                if isinstance(binding, Assigned):
                    method = self._method_of_value(name, binding.value, binding.scope)
                yield ("backward" if name == "vjp" else name), method

    def _method(self, function: FunctionDefinition) -> _Method:
        decorators = [each for each in function.node.decorator_list if not isinstance(each, ast.Call)]
        once = any(self._resolver.dotted_names(each, function.scope) & _ONCE for each in decorators)
        symbol = function.qualname
        return _Method(location=self._locate(function.path, function.node, symbol), once_differentiable=once)

    def _method_of_value(self, name: str, value: ast.expr, scope: Scope) -> _Method | None:
        """A method given as `staticmethod(f)`, `once_differentiable(f)`, `f`, or a lambda."""
        once = False
        while isinstance(value, ast.Call) and len(value.args) == 1:
            once = once or bool(self._resolver.dotted_names(value.func, scope) & _ONCE)
            value = value.args[0]
        meanings = self._resolver.resolve(value, scope)
        if any(isinstance(each, External) and each.dotted.rpartition(".")[0] in FUNCTION_NAMES for each in meanings):
            return None  # Function's own, which says that there is none
        functions = [each for each in meanings if isinstance(each, FunctionDefinition)]
        if functions:
            found = self._method(functions[0])
            return _Method(location=found.location, once_differentiable=once or found.once_differentiable)
        if isinstance(value, ast.Constant) and value.value is None:
            return None
        return _Method(location=self._locate(scope.path, value, name), once_differentiable=once)

    def _looks_like_function(self, definition: ClassDefinition) -> bool:
        for name in ("forward", "backward"):
            found = [each for each in definition.body.bindings.get(name, []) if isinstance(each, FunctionDefinition)]
            if not any(_is_static(each.node) and each.node.args.args[:1] for each in found):
                return False
        return True


def _is_static(node: FunctionNode) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)


def _either(meanings: list[_Class]) -> _Class:
    """A base of several meanings (imported in `try` and in `except`) is a Function if one of them is."""
    for verdict in (True, None):
        for each in meanings:
            if each.is_function is verdict:
                return each
    return meanings[0] if meanings else _Class(is_function=None)


def _merged(own: _Class, bases: list[_Class]) -> _Class:
    """A class of what it has itself and of its bases, the first of which wins."""
    methods = {name: method for base in reversed(bases) for name, method in base.methods.items()} | dict(own.methods)
    verdicts = {base.is_function for base in bases}
    flags = [each.generates_vmap for each in (own, *bases) if each.generates_vmap is not None]
    unknown = None if None in verdicts and own.is_function is None else False
    return _Class(
        is_function=True if True in verdicts else unknown,
        methods=methods,
        generates_vmap=flags[0] if flags else None,
        open=own.open or any(base.open for base in bases),
    )


def _flag(bindings: Iterable[Binding]) -> bool | None:
    values = [each.value for each in bindings if isinstance(each, Assigned)]
    constants = [each.value is True for each in values if isinstance(each, ast.Constant)]
    return constants[-1] if constants else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A class that a call makes: `open` where its members are not written out."""

    name: str | None
    bases: list[ast.expr]
    members: Mapping[str, ast.expr]
    open: bool


def _made_by_call(node: ast.Call, scope: Scope, resolver: Resolver) -> _Made | None:
    """What `type(name, bases, members)` and `types.new_class(name, bases, ...)` make; None for other calls."""
    if len(node.args) < 2 or not isinstance(node.args[1], ast.Tuple | ast.List):
        return None
    callee = resolver.dotted_names(node.func, scope)
    if not (("type" in callee and len(node.args) == 3) or "types.new_class" in callee):
        return None
    members = _written_members(node.args[2], scope, resolver) if "type" in callee else None
    name = resolver.text(node.args[0], scope)
    return _Made(name=name, bases=list(node.args[1].elts), members=members or {}, open=members is None)


def _written_members(node: ast.expr, scope: Scope, resolver: Resolver) -> dict[str, ast.expr] | None:
    """The members in a literal `{...}` or `dict(...)`; None where they are made in another way."""
    for meaning in resolver.resolve(node, scope):
        if isinstance(meaning, Value) and isinstance(meaning.node, ast.Dict):
            pairs = zip(meaning.node.keys, meaning.node.values, strict=True)
            written = {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
            if len(written) == len(meaning.node.keys):
                return {str(name): value for name, value in written.items()}
        if isinstance(meaning, Value) and isinstance(meaning.node, ast.Call) and not meaning.node.args:
            callee = resolver.dotted_names(meaning.node.func, meaning.scope)
            return {word.arg: word.value for word in meaning.node.keywords if word.arg} if "dict" in callee else None
    return None


def _bound_name(node: ast.Call, module: ParsedModule) -> str | None:
    for name, bindings in module.scope.bindings.items():
        if any(isinstance(each, Assigned) and each.value is node for each in bindings):
            return name
    return None
