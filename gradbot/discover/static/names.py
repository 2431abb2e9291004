"""What an expression means: follows names through scopes, assignments, imports and re-exports, across files."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gradbot.discover.static.locate import Locator, ModuleSource, source_of
from gradbot.discover.static.syntax import (
    Assigned,
    Binding,
    ClassDefinition,
    FunctionDefinition,
    Imported,
    ParsedModule,
    Scope,
    parse,
)

_DEPTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """A name of something whose source is not there or is not looked into."""

    dotted: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Value:
    """An expression that is neither a name nor an attribute: a call, a constant."""

    node: ast.expr
    scope: Scope


Meaning = External | Value | ClassDefinition | FunctionDefinition


class Resolver:
    """Follows names. Parses further files when a name leads there, each at most once.

    `opaque` are packages that are not looked into: what their names are is known without.
    """

    def __init__(self, sources: Mapping[str, ModuleSource], locate: Locator, opaque: Iterable[str] = ()) -> None:
        self._sources = dict(sources)
        self._locate = locate
        self._opaque = tuple(opaque)
        self._parsed: dict[str, ParsedModule | None] = {}
        # What is being resolved stands in these with what it means if it is met again: cycles end there.
        # Nodes are kept with their meaning, so that no other one gets their number.
        self._of_node: dict[int, tuple[ast.expr, list[Meaning]]] = {}
        self._of_dotted: dict[str, list[Meaning]] = {}

    def add(self, module: ParsedModule) -> None:
        """Make a parsed module known."""
        self._parsed[module.name] = module

    def module(self, name: str) -> ParsedModule | None:
        """A module by name, parsed now if it was not; None where there is no source that can be read."""
        if name not in self._parsed:
            source = self._sources.get(name)
            if source is None and name.partition(".")[0] not in sys.stdlib_module_names:
                source = source_of(name, self._locate)
            self._parsed[name] = _parse_or_none(source)
        return self._parsed[name]

    def resolve(self, node: ast.expr, scope: Scope, depth: int = 0) -> list[Meaning]:
        """Every meaning of an expression; empty where only running the code would tell."""
        if depth > _DEPTH:
            return []
        if id(node) not in self._of_node:
            self._of_node[id(node)] = node, []
            self._of_node[id(node)] = node, self._resolve(node, scope, depth)
        return self._of_node[id(node)][1]

    def _resolve(self, node: ast.expr, scope: Scope, depth: int) -> list[Meaning]:
        if isinstance(node, ast.Name):
            return self._resolve_name(node.id, scope, depth + 1)
        if isinstance(node, ast.Attribute):
            bound = self._bindings_outward(ast.unparse(node), scope)
            if bound:
                return self._follow(bound, depth + 1)
            bases = self.resolve(node.value, scope, depth + 1)
            return [found for base in bases for found in self._attribute(base, node.attr, depth + 1)]
        if isinstance(node, ast.IfExp):
            return [found for each in (node.body, node.orelse) for found in self.resolve(each, scope, depth + 1)]
        if isinstance(node, ast.Subscript):
            # Subscripts of classes are type arguments: Base[T] is Base.
            return [found for found in self.resolve(node.value, scope, depth + 1) if isinstance(found, ClassDefinition)]
        return [Value(node=node, scope=scope)]

    def resolve_dotted(self, dotted: str, depth: int = 0) -> list[Meaning]:
        """Every meaning of an absolute dotted name."""
        if dotted not in self._of_dotted:
            self._of_dotted[dotted] = [External(dotted=dotted)]
            if depth <= _DEPTH and not any(f"{dotted}.".startswith(f"{each}.") for each in self._opaque):
                self._of_dotted[dotted] = self._resolve_dotted(dotted, depth)
        return self._of_dotted[dotted]

    def _resolve_dotted(self, dotted: str, depth: int) -> list[Meaning]:
        parts = dotted.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            module = self.module(".".join(parts[:cut]))
            if module is None:
                continue
            found = self._in_module(module, parts[cut], depth + 1)
            for attribute in parts[cut + 1 :]:
                found = [deeper for each in found for deeper in self._attribute(each, attribute, depth + 1)]
            return found or [External(dotted=dotted)]
        return [External(dotted=dotted)]

    def dotted_names(self, node: ast.expr, scope: Scope) -> set[str]:
        """The meanings of an expression as dotted names, definitions by where they are defined."""
        names = set()
        for found in self.resolve(node, scope):
            if isinstance(found, External):
                names.add(found.dotted)
            elif isinstance(found, ClassDefinition | FunctionDefinition):
                names.add(f"{found.module}.{found.qualname}")
        return names

    def text(self, node: ast.expr | None, scope: Scope, depth: int = 0) -> str | None:
        """The value of a constant string expression: literals, f-strings, sums, names of such; None if it is not."""
        if depth > _DEPTH or node is None:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.JoinedStr):
            parts = [self.text(each, scope, depth + 1) for each in node.values]
            return None if None in parts else "".join(part for part in parts if part is not None)
        if isinstance(node, ast.FormattedValue):
            return self.text(node.value, scope, depth + 1) if node.format_spec is None else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.text(node.left, scope, depth + 1), self.text(node.right, scope, depth + 1)
            return left + right if left is not None and right is not None else None
        if isinstance(node, ast.Name | ast.Attribute):
            values = [each for each in self.resolve(node, scope) if isinstance(each, Value)]
            if len(values) == 1 and values[0].node is not node:
                return self.text(values[0].node, values[0].scope, depth + 1)
        return None

    def _resolve_name(self, name: str, scope: Scope, depth: int) -> list[Meaning]:
        bound = self._bindings_outward(name, scope)
        if bound:
            return self._follow(bound, depth)
        for each in scope.outward():
            for star in each.stars:
                found = self._starred(star, name, depth)
                if found:
                    return found
        return [External(dotted=name)]

    def _bindings_outward(self, name: str, scope: Scope) -> list[Binding]:
        """The bindings in the nearest scope that has any. A function does not see the plain names of classes around."""
        for each in scope.outward():
            if name in each.bindings and ("." in name or each is scope or not each.is_class):
                return each.bindings[name]
        return []

    def _follow(self, bindings: list[Binding], depth: int) -> list[Meaning]:
        found: list[Meaning] = []
        for binding in bindings:
            if isinstance(binding, Imported):
                found += self.resolve_dotted(binding.dotted, depth)
            elif isinstance(binding, Assigned):
                found += self.resolve(binding.value, binding.scope, depth)
            elif isinstance(binding, ClassDefinition | FunctionDefinition):
                found.append(binding)
        return found

    def _in_module(self, module: ParsedModule, name: str, depth: int) -> list[Meaning]:
        if depth > _DEPTH:
            return []
        if name in module.scope.bindings:
            return self._follow(module.scope.bindings[name], depth)
        for star in module.scope.stars:
            found = self._starred(star, name, depth)
            if found:
                return found
        return []

    def _starred(self, origin: str, name: str, depth: int) -> list[Meaning]:
        module = self.module(origin) if depth <= _DEPTH else None
        return self._in_module(module, name, depth + 1) if module is not None else []

    def _attribute(self, base: Meaning, attribute: str, depth: int) -> list[Meaning]:
        if isinstance(base, External):
            return self.resolve_dotted(f"{base.dotted}.{attribute}", depth)
        if isinstance(base, ClassDefinition):
            return self._follow(base.body.bindings.get(attribute, []), depth)
        return []


def _parse_or_none(source: ModuleSource | None) -> ParsedModule | None:
    if source is None:
        return None
    try:
        return parse(source.path, source.name, is_package=source.is_package)
    except (SyntaxError, OSError):
        return None
