"""Declaring inputs: `@gradbot.cases(target)` on a function that yields `gradbot.Sample(*args, **kwargs)`.

    @gradbot.cases(SoftCap)
    def softcap():
        yield gradbot.Sample(torch.randn(4, 5, requires_grad=True), 2.0)
        yield gradbot.Sample(torch.randn(3, 64), 0.5).named("small cap").options(rtol=1e-4)

The function may take `dtype` and `device` by these names and then makes its tensors so; else its tensors are converted
where other dtypes or devices are asked for. It is seeded before it runs. Floating-point tensors require grad if none of
the sample does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from gradbot.config import TargetTable, read_target_table
from gradbot.errors import UsageError

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

REGISTRY = "__gradbot_cases__"
"""The name under which a module keeps what it declares."""

_CALLABLES = ("reference", "surrogate_of", "projection", "invariant")


class SampleOptions(TypedDict, total=False):
    """How a sample, or all samples of a generator, are checked; the README's table of target settings explains each."""

    dtypes: Iterable[torch.dtype | str]
    devices: Iterable[str]
    mode: str
    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    masked: bool
    checks: Iterable[str]
    skip_checks: Iterable[str]
    require: Iterable[str]
    expect: str
    expect_kinds: Iterable[str]
    reason: str
    skip: str
    resample: bool
    repeats: int
    determinism_seconds: float
    deterministic_algorithms: bool
    reference: Callable[..., Any] | str
    surrogate_of: Callable[..., Any] | str
    projection: Callable[..., Any] | str
    invariant: Callable[..., Any] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options held to their types. `callables` are those that were given as objects, by name."""

    table: TargetTable = field(default_factory=lambda: TargetTable(pattern=""))
    callables: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


class Sample:
    """The arguments of one call, in the order of the call. Never changed: `named` and `options` return a new one."""

    __slots__ = ("args", "declared", "kwargs", "name")

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs
        self.name = ""
        self.declared: Mapping[str, Any] = {}

    def named(self, name: str) -> Sample:
        """The same sample under a name, which shows in reports and is what `--case` takes."""
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"Sample.named: expected a name, found {name!r}")
        return self._copy(name, self.declared)

    def options(self, **options: Unpack[SampleOptions]) -> Sample:
        """The same sample with options of its own; they win over those of `@gradbot.cases` and the configuration."""
        read_options(options, "Sample.options", {"reason": "may stand in @gradbot.cases"})
        return self._copy(self.name, {**self.declared, **options})

    def _copy(self, name: str, declared: Mapping[str, Any]) -> Sample:
        made = Sample(*self.args, **self.kwargs)
        made.name, made.declared = name, declared
        return made

    def __repr__(self) -> str:
        return f"<Sample {self.name or 'unnamed'}: {len(self.args)} arguments, {len(self.kwargs)} keyword arguments>"


Generator = Callable[..., Iterable[Sample]]
F = TypeVar("F", bound=Generator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A generator, what it is for, and options of all its samples. `name` is unique in its module."""

    name: str
    target: Any
    generator: Generator
    ids: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)


def cases(target: Any, *, ids: Iterable[str] = (), **options: Unpack[SampleOptions]) -> Callable[[F], F]:
    """Declare inputs of `target`: the decorated function yields `Sample`s.

    `target` is a `torch.autograd.Function` subclass, an op, a function or an nn.Module; or the name of one:
    `pkg.mod:Outer.Name` or `ns::name`. `ids` name the samples in their order. `options` hold for all samples; see
    `SampleOptions`. An `expect` needs a `reason`. Raises `UsageError` for options that do not exist or are of another
    type.
    """
    names = tuple(ids)
    read = read_options(options, "@gradbot.cases", {})

    def declare(generator: F) -> F:
        module = getattr(generator, "__globals__", None)
        if module is None:
            raise UsageError(f"@gradbot.cases decorates a function that yields samples, not {generator!r}")
        _check_parameters(generator)
        register(
            module,
            Declaration(name=generator.__qualname__, target=target, generator=generator, ids=names, options=read),
        )
        return generator

    return declare


def register(module: dict[str, Any], declaration: Declaration) -> None:
    """Add a declaration to a module's namespace. One whose name is taken (`_`, often) gets a number: `_~2`."""
    declared: list[Declaration] = module.setdefault(REGISTRY, [])
    same = sum(each.name.partition("~")[0] == declaration.name for each in declared)
    if same:
        declaration = Declaration(
            name=f"{declaration.name}~{same + 1}",
            target=declaration.target,
            generator=declaration.generator,
            ids=declaration.ids,
            options=declaration.options,
        )
    declared.append(declaration)


def read_options(options: Mapping[str, Any], where: str, outer: Mapping[str, Any]) -> Options:
    """Hold options to their types; `outer` are those around them, where a reason may stand. Raises `UsageError`."""
    callables = {name: options[name] for name in _CALLABLES if callable(options.get(name))}
    plain = {name: value for name, value in options.items() if value is not None}
    plain |= {name: name_of(value) for name, value in callables.items()}
    for name in ("dtypes", "devices", "checks", "skip_checks", "require", "expect_kinds"):
        if name in plain and not isinstance(plain[name], str):
            try:
                plain[name] = [str(getattr(each, "value", each)) for each in plain[name]]
            except TypeError:
                plain[name] = [str(plain[name])]  # a single torch.dtype or torch.device
    if plain.get("expect") and not plain.get("reason") and outer.get("reason"):
        plain["reason"] = outer["reason"]
    return Options(table=read_target_table("", plain, where), callables=callables)


def name_of(function: Any) -> str:
    """`pkg.mod:name` of a callable, for reports."""
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}:{getattr(function, '__qualname__', None) or type(function).__qualname__}"


def _check_parameters(generator: Generator) -> None:
    parameters = inspect.signature(generator).parameters.values()
    unknown = [
        each.name
        for each in parameters
        if each.name not in ("dtype", "device")
        and each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if unknown:
        name = generator.__qualname__
        raise UsageError(
            f"{name}: a function that yields samples takes `device` and `dtype` at most, found {unknown[0]!r}"
        )
