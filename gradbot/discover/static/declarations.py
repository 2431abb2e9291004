"""Where cases are declared, as far as the sources show: `@gradbot.cases(target)` generators and their targets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gradbot.discover.static.names import External, Resolver
from gradbot.discover.static.ops import op_id
from gradbot.discover.static.places import files_below
from gradbot.discover.static.registrations import op_of_function
from gradbot.discover.static.syntax import ClassDefinition, FunctionDefinition, ParsedModule

DECORATORS = frozenset({"gradbot.cases", "gradbot.inputs.declared.cases"})

_MAKERS = frozenset({"gradbot.from_opinfo", "gradbot.inputs.opinfo.from_opinfo"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A generator of cases. `target` is "" where only running the file would tell.

    `at_import`: it is made when the file is imported; not so in functions, which tests may have.
    """

    target: str
    path: Path
    line: int
    name: str
    at_import: bool = True


def may_declare(path: Path) -> bool:
    """Whether a file's text can hold a declaration at all."""
    try:
        text = path.read_bytes()
    except OSError:
        return False
    return b"gradbot" in text and (b"cases" in text or b"from_opinfo" in text)


def mentions(path: Path, modules: Iterable[str]) -> bool:
    """Whether a file's text names one of these modules, as one that imports it or declares cases for it must."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(re.search(rf"(?<![\w.]){re.escape(each)}(?!\w)", text) for each in modules)


def named_files(root: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """The Python files that `patterns` name: files, folders (those in it that may declare cases) and globs."""
    for pattern in patterns:
        path = root / pattern
        if path.is_file():
            yield path.resolve()
        elif path.is_dir():
            yield from (each.resolve() for each in files_below(path) if each.suffix == ".py" and may_declare(each))
        elif not Path(pattern).is_absolute():
            yield from (
                each.resolve() for each in sorted(root.glob(pattern)) if each.is_file() and each.suffix == ".py"
            )


def searched_files(root: Path) -> Iterator[Path]:
    """The Python files below `root` that may declare cases."""
    yield from (each.resolve() for each in files_below(root) if each.suffix == ".py" and may_declare(each))


def declarations(module: ParsedModule, resolver: Resolver) -> Iterator[Declaration]:
    """The generators that a file declares."""
    for function in module.functions:
        for decorator in function.node.decorator_list:
            if (
                not isinstance(decorator, ast.Call)
                or not resolver.dotted_names(decorator.func, function.scope) & DECORATORS
            ):
                continue
            words = [word.value for word in decorator.keywords if word.arg == "target"]
            for target in (*decorator.args[:1], *words):
                yield Declaration(
                    target=_target_id(target, function, resolver),
                    path=module.path,
                    line=function.node.lineno,
                    name=function.qualname,
                )
    for call, scope in module.calls:
        if ast.unparse(call.func).endswith("from_opinfo") and resolver.dotted_names(call.func, scope) & _MAKERS:
            at_import = scope.parent is None
            yield Declaration(target="", path=module.path, line=call.lineno, name="from_opinfo", at_import=at_import)


def _target_id(node: ast.expr, function: FunctionDefinition, resolver: Resolver) -> str:
    text = resolver.text(node, function.scope)
    if text is not None:
        return op_id(text)
    for found in resolver.resolve(node, function.scope):
        if isinstance(found, FunctionDefinition):
            return op_of_function(found, resolver) or f"{found.module}:{found.qualname}"
        if isinstance(found, ClassDefinition):
            return f"{found.module}:{found.qualname}"
        if isinstance(found, External) and found.dotted.startswith("torch.ops."):
            namespace, _, name = found.dotted.removeprefix("torch.ops.").partition(".")
            return op_id(f"{namespace}::{name}")
        if isinstance(found, External) and "." in found.dotted:
            module, _, name = found.dotted.rpartition(".")
            return f"{module}:{name}"
    return ""
