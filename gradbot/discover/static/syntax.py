"""One Python file as scopes, bindings, classes, functions and calls. Nothing is imported or run.

Scopes are read loosely: a name that is bound several times (in the branches of `try` or `if`) has several meanings,
and each is followed.
"""

from __future__ import annotations

import ast
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A name that an import statement binds to `dotted`."""

    dotted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A name that is bound to the value of an expression."""

    value: ast.expr
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A name whose meaning only a call decides."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassDefinition:
    """A class statement. `scope` is the one that it stands in, `body` its own."""

    module: str
    path: Path
    qualname: str
    node: ast.ClassDef
    scope: Scope
    body: Scope


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionDefinition:
    """A def statement. `scope` is the one that it stands in."""

    module: str
    path: Path
    qualname: str
    node: FunctionNode
    scope: Scope


Binding = Imported | Assigned | Parameter | ClassDefinition | FunctionDefinition


@dataclass(slots=True, kw_only=True, eq=False)
class Scope:
    """The names of a module, class or function. `prefix` is what stands before the qualname of what is defined here."""

    module: str
    path: Path
    prefix: str
    parent: Scope | None
    is_class: bool = False
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)

    def bind(self, name: str, binding: Binding) -> None:
        """Add a meaning of `name`."""
        self.bindings.setdefault(name, []).append(binding)

    def outward(self) -> Iterator[Scope]:
        """This scope and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParsedModule:
    """What a file defines and calls. `decorators` are calls that stand as decorators, kept apart from `calls`."""

    name: str
    path: Path
    scope: Scope
    classes: list[ClassDefinition] = field(default_factory=list)
    functions: list[FunctionDefinition] = field(default_factory=list)
    calls: list[tuple[ast.Call, Scope]] = field(default_factory=list)


def parse(path: Path, module: str, *, is_package: bool) -> ParsedModule:
    """Read one file. Raises SyntaxError, also for what is not text in its declared encoding, and OSError."""
    try:
        with tokenize.open(path) as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise SyntaxError(f"not {error.encoding} text: {error.reason}") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(text, filename=str(path))
        except (ValueError, RecursionError, MemoryError) as error:
            raise SyntaxError(str(error) or type(error).__name__) from None
    scope = Scope(module=module, path=path, prefix="", parent=None)
    parsed = ParsedModule(name=module, path=path, scope=scope)
    package = module if is_package else module.rpartition(".")[0]
    _Reader(parsed, package).read(tree.body, scope)
    return parsed


_LEAVES = (ast.Constant, ast.Name, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


class _Reader(ast.NodeVisitor):
    def __init__(self, parsed: ParsedModule, package: str) -> None:
        self.parsed = parsed
        self.package = package
        self.scope = parsed.scope

    def read(self, nodes: Iterable[ast.AST], scope: Scope) -> None:
        outer, self.scope = self.scope, scope
        for node in nodes:
            self.visit(node)
        self.scope = outer

    def generic_visit(self, node: ast.AST) -> None:
        """As usual, but past what holds neither names nor calls, which is most of a tree."""
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST) and not isinstance(item, _LEAVES):
                        self.visit(item)
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                self.visit(value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        qualname = self.scope.prefix + node.name
        body = self._scope(qualname + ".", is_class=True)
        definition = ClassDefinition(
            module=self.parsed.name, path=self.parsed.path, qualname=qualname, node=node, scope=self.scope, body=body
        )
        self.parsed.classes.append(definition)
        self.scope.bind(node.name, definition)
        self._read_decorators(node.decorator_list)
        self.read([*node.bases, *node.keywords], self.scope)
        self.read(node.body, body)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._read_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._read_function(node)

    def _read_function(self, node: FunctionNode) -> None:
        qualname = self.scope.prefix + node.name
        definition = FunctionDefinition(
            module=self.parsed.name, path=self.parsed.path, qualname=qualname, node=node, scope=self.scope
        )
        self.parsed.functions.append(definition)
        self.scope.bind(node.name, definition)
        self._read_decorators(node.decorator_list)
        body = self._scope(qualname + ".<locals>.")
        every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
        for argument in every:
            if argument is not None:
                body.bind(argument.arg, Parameter())
        self.read(node.body, body)

    def _scope(self, prefix: str, is_class: bool = False) -> Scope:
        parsed = self.parsed
        return Scope(module=parsed.name, path=parsed.path, prefix=prefix, parent=self.scope, is_class=is_class)

    def _read_decorators(self, decorators: Iterable[ast.expr]) -> None:
        for decorator in decorators:
            if isinstance(decorator, ast.Call):
                self.read([decorator.func, *decorator.args, *decorator.keywords], self.scope)
            else:
                self.visit(decorator)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self.scope.bind(alias.asname or top, Imported(dotted=alias.name if alias.asname else top))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        origin = self._origin(node)
        for alias in node.names:
            if alias.name == "*":
                self.scope.stars.append(origin)
            else:
                self.scope.bind(alias.asname or alias.name, Imported(dotted=f"{origin}.{alias.name}".lstrip(".")))

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        above = self.package.split(".") if self.package else []
        above = above[: max(len(above) - (node.level - 1), 0)]
        return ".".join([*above, *([node.module] if node.module else [])])

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self._assign(item.optional_vars, item.context_expr)
        self.generic_visit(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for each, part in zip(target.elts, value.elts, strict=False):
                self._assign(each, part)
        elif isinstance(target, ast.Name):
            self.scope.bind(target.id, Assigned(value=value, scope=self.scope))
        elif isinstance(target, ast.Attribute):
            holder = next((each for each in self.scope.outward() if each.is_class), self.parsed.scope)
            holder.bind(ast.unparse(target), Assigned(value=value, scope=self.scope))

    def visit_Call(self, node: ast.Call) -> None:
        self.parsed.calls.append((node, self.scope))
        self.generic_visit(node)
