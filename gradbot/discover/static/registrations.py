"""Registrations with torch.library in parsed files: each call and decorator that says something about an op."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gradbot.discover.static.classes import Locate
from gradbot.discover.static.names import External, Resolver, Value
from gradbot.discover.static.ops import Registration, op_id
from gradbot.discover.static.syntax import Assigned, FunctionDefinition, Imported, ParsedModule, Scope
from gradbot.model import Location

_DEFINERS = {
    "torch.library.custom_op": False,
    "torch._library.custom_ops.custom_op": False,
    "torch._library.custom_op": False,
    "torch._custom_op.impl.custom_op": False,
    "torch._custom_ops.custom_op": False,
    "torch.library.triton_op": True,
    "torch._library.triton.triton_op": True,
    "torch._library.triton_op": True,
}
"""Decorators that define an op of a function -> whether they are for Triton kernels."""

_PARTS = {
    "register_autograd": "autograd",
    "register_fake": "fake",
    "impl_abstract": "fake",
    "_register_fake": "fake",
    "register_vmap": "vmap",
    "register_kernel": "impl",
    "impl": "impl",
    "define": "define",
}
_SCHEMA = re.compile(r"\s*(?:(?P<namespace>\w+)::)?(?P<name>\w+(?:\.\w+)?)\s*(?P<signature>\(.*)?$", re.DOTALL)


def registrations(module: ParsedModule, resolver: Resolver, locate: Locate) -> Iterator[Registration]:
    """Every registration that a module states with names that are constant."""
    reader = _Reader(module, resolver, locate)
    for function in module.functions:
        for decorator in function.node.decorator_list:
            if isinstance(decorator, ast.Call):
                yield from reader.read(decorator, function.scope, function)
            else:
                yield from reader.read(ast.Call(func=decorator, args=[], keywords=[]), function.scope, function)
    for node, scope in module.calls:
        yield from reader.read(node, scope, None)


class _Reader:
    def __init__(self, module: ParsedModule, resolver: Resolver, locate: Locate) -> None:
        self._module = module
        self._resolver = resolver
        self._locate = locate

    def read(self, call: ast.Call, scope: Scope, decorated: FunctionDefinition | None) -> Iterator[Registration]:
        """What one call says; `decorated` where it stands as a decorator."""
        if not _may_register(call.func, scope):
            return
        for name in self._resolver.dotted_names(call.func, scope):
            if name in _DEFINERS:
                yield from self._defined_by_function(call, scope, decorated, triton=_DEFINERS[name])
                return
            if name.startswith("torch.library.") and name.rpartition(".")[2] in _PARTS:
                yield from self._by_library_function(call, scope, decorated, name.rpartition(".")[2])
                return
        if isinstance(call.func, ast.Attribute) and call.func.attr in _PARTS:
            yield from self._by_method(call, call.func, scope, decorated)

    def _defined_by_function(
        self, call: ast.Call, scope: Scope, decorated: FunctionDefinition | None, *, triton: bool
    ) -> Iterator[Registration]:
        op = self._op_of_text(_argument(call, 0, "name"), scope)
        function = decorated or self._function(_argument(call, 1, "fn"), scope)
        if op is None:
            return
        place = self._place(call, scope, function)
        schema = self._resolver.text(_argument(call, None, "schema"), scope) or ""
        yield self._registration(op, "define", place, schema=f"{op}{schema}" if schema else "", triton=triton)
        yield self._registration(op, "impl", place)

    def _by_library_function(
        self, call: ast.Call, scope: Scope, decorated: FunctionDefinition | None, name: str
    ) -> Iterator[Registration]:
        """`torch.library` functions: `define("ns::op", schema)`, `impl("ns::op", types)`, `register_fake("ns::op", f)`.

        And the older form with a library first: `impl(lib, "op", key)`.
        """
        first = _argument(call, 0, "op" if name.startswith("register") else "qualname")
        namespace = self._library_namespace(first, scope)
        rest = call.args[2:] if namespace else call.args[1:]
        if namespace is not None:  # the older form: @torch.library.impl(lib, "name", "CPU")
            text = self._resolver.text(_argument(call, 1, "name"), scope)
            op, schema = _split_schema(text, namespace) if text else (None, "")
        elif name == "define":
            text = self._resolver.text(first, scope)
            op, schema = _split_schema(text, None) if text else (None, "")
            signature = self._resolver.text(_argument(call, 1, "schema"), scope)
            schema = f"{op}{signature}" if signature and not schema else schema
        else:
            op, schema = self._op_of(first, scope), ""
        if op is not None:
            yield from self._parts(call, scope, decorated, name, op, rest, schema)

    def _by_method(
        self, call: ast.Call, callee: ast.Attribute, scope: Scope, decorated: FunctionDefinition | None
    ) -> Iterator[Registration]:
        """`lib.define(schema)`, `lib.impl(name, f, key)`, `lib._register_fake(name, f)`, `my_op.register_*(f)`."""
        namespace = self._library_namespace(callee.value, scope)
        if namespace is not None:
            given = len(call.args) > 2 or any(word.arg == "dispatch_key" for word in call.keywords)
            key = "" if given else self._library_key(callee.value, scope) or "CompositeImplicitAutograd"
            op, schema = self._op_in_library(_argument(call, 0, None), namespace, scope)
            if op is not None:
                yield from self._parts(call, scope, decorated, callee.attr, op, call.args[1:], schema, key)
        elif callee.attr.startswith("register_"):
            op = self._op_of(callee.value, scope)
            if op is not None:
                yield from self._parts(call, scope, decorated, callee.attr, op, call.args, "")

    def _parts(
        self,
        call: ast.Call,
        scope: Scope,
        decorated: FunctionDefinition | None,
        name: str,
        op: str,
        rest: list[ast.expr],
        schema: str,
        default_key: str = "",
    ) -> Iterator[Registration]:
        words = [
            word.value
            for word in call.keywords
            if word.arg in ("backward", "func", "fn", "backward_fn", "dispatch_key")
        ]
        functions = [found for each in (*rest, *words) if (found := self._function(each, scope)) is not None]
        place = self._place(call, scope, decorated or (functions[0] if functions else None))
        texts = [text for each in (*rest, *words) if (text := self._resolver.text(each, scope)) is not None]
        key = (texts[0] if texts else default_key) if _PARTS[name] == "impl" else ""
        yield self._registration(op, _PARTS[name], place, key=key, schema=schema if _PARTS[name] == "define" else "")

    def _registration(
        self, op: str, part: str, place: Location, key: str = "", schema: str = "", triton: bool = False
    ) -> Registration:
        module = self._module.name
        return Registration(op=op, part=part, location=place, module=module, key=key, schema=schema, triton=triton)

    def _place(self, call: ast.Call, scope: Scope, function: FunctionDefinition | None) -> Location:
        if function is not None:
            return self._locate(function.path, function.node, function.qualname)
        return self._locate(scope.path, call, "")

    def _function(self, node: ast.expr | None, scope: Scope) -> FunctionDefinition | None:
        if node is None or isinstance(node, ast.Constant):
            return None
        return next(
            (each for each in self._resolver.resolve(node, scope) if isinstance(each, FunctionDefinition)), None
        )

    def _op_of_text(self, node: ast.expr | None, scope: Scope) -> str | None:
        text = self._resolver.text(node, scope)
        return _split_schema(text, None)[0] if text else None

    def _op_in_library(self, node: ast.expr | None, namespace: str, scope: Scope) -> tuple[str | None, str]:
        text = self._resolver.text(node, scope)
        return _split_schema(text, namespace) if text else (self._op_of(node, scope), "")

    def _op_of(self, node: ast.expr | None, scope: Scope) -> str | None:
        """The op that an expression names: its text, a decorated function, a made op, or `torch.ops.ns.name`."""
        if node is None:
            return None
        text = self._op_of_text(node, scope)
        if text is not None:
            return text
        for found in self._resolver.resolve(node, scope):
            if isinstance(found, External) and found.dotted.startswith("torch.ops."):
                namespace, _, name = found.dotted.removeprefix("torch.ops.").partition(".")
                return op_id(f"{namespace}::{name}") if name else None
            if isinstance(found, FunctionDefinition):
                op = op_of_function(found, self._resolver)
                if op is not None:
                    return op
            if isinstance(found, Value) and isinstance(found.node, ast.Call):
                op = _op_of_call(found.node, found.scope, self._resolver)
                if op is not None:
                    return op
        return None

    def _library_namespace(self, node: ast.expr | None, scope: Scope) -> str | None:
        made = self._library_call(node, scope)
        return self._resolver.text(_argument(made[0], 0, "ns"), made[1]) if made else None

    def _library_key(self, node: ast.expr | None, scope: Scope) -> str:
        made = self._library_call(node, scope)
        return self._resolver.text(_argument(made[0], 2, "dispatch_key"), made[1]) or "" if made else ""

    def _library_call(self, node: ast.expr | None, scope: Scope) -> tuple[ast.Call, Scope] | None:
        if node is None or isinstance(node, ast.Constant):
            return None
        for found in self._resolver.resolve(node, scope):
            if isinstance(found, Value) and isinstance(found.node, ast.Call):
                names = self._resolver.dotted_names(found.node.func, found.scope)
                if "torch.library.Library" in names or "torch.library._scoped_library" in names:
                    return found.node, found.scope
        return None


def op_of_function(function: FunctionDefinition, resolver: Resolver) -> str | None:
    """The op that a decorated function becomes; None where it stays a function."""
    calls = (each for each in function.node.decorator_list if isinstance(each, ast.Call))
    return next((op for each in calls if (op := _op_of_call(each, function.scope, resolver)) is not None), None)


def _op_of_call(call: ast.Call, scope: Scope, resolver: Resolver) -> str | None:
    if isinstance(call.func, ast.Call):  # custom_op("ns::name")(function)
        return _op_of_call(call.func, scope, resolver)
    if resolver.dotted_names(call.func, scope) & _DEFINERS.keys():
        text = resolver.text(_argument(call, 0, "name"), scope)
        return _split_schema(text, None)[0] if text else None
    return None


_NAMES = frozenset(_PARTS) | {name.rpartition(".")[2] for name in _DEFINERS}


def _may_register(callee: ast.expr, scope: Scope) -> bool:
    """Whether a callee is spelled, or imported, like a registration. Most calls are not, and need not be followed."""
    if isinstance(callee, ast.Attribute):
        return callee.attr in _NAMES
    if not isinstance(callee, ast.Name):
        return False
    bound = next((each.bindings[callee.id] for each in scope.outward() if callee.id in each.bindings), [])
    imported = {each.dotted.rpartition(".")[2] for each in bound if isinstance(each, Imported)}
    assigned = {ast.unparse(each.value).rpartition(".")[2] for each in bound if isinstance(each, Assigned)}
    return bool({callee.id, *imported, *assigned} & _NAMES)


def _argument(call: ast.Call, position: int | None, name: str | None) -> ast.expr | None:
    if position is not None and position < len(call.args):
        return call.args[position]
    return next((word.value for word in call.keywords if word.arg == name), None) if name else None


def _split_schema(text: str, namespace: str | None) -> tuple[str | None, str]:
    """Op id and schema of `ns::name.overload(arguments) -> returns`; the schema "" where only the name is given."""
    match = _SCHEMA.match(text)
    if match is None or not (match["namespace"] or namespace):
        return None, ""
    op = op_id(f"{match['namespace'] or namespace}::{match['name']}")
    return op, f"{op}{match['signature'].strip()}" if match["signature"] else ""
