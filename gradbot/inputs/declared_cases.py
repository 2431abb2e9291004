"""From declarations to cases, and from a case back to its sample.

A reference reads `declared:<file>:<generator>#<index>`, the file relative to the project where it lies in it. Samples
are made anew for every case by running the generator, seeded from the case's seed and the generator's name, up to the
sample that is wanted.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gradbot.config import TargetOptions
from gradbot.discover.runtime.imports import ImportFailedError, import_file, one_line, put_on_path
from gradbot.discover.static.places import import_root
from gradbot.engine.references import References
from gradbot.errors import UsageError
from gradbot.inputs.declared import REGISTRY, Declaration, Options, Sample, read_options
from gradbot.inputs.seeding import seed_of, seeded
from gradbot.inputs.source import Collected, InputsError, LoadedCase, Request, case_id, renamed
from gradbot.inputs.targets import Subject, resolve, subject_of
from gradbot.inputs.tensors import converted_module, dtype_of, prepared, shapes_text
from gradbot.model import Case, CheckSettings, ImportProblem, InputSource, Target

_SAMPLE_CAP = 10_000
_REFERENCES = ("reference", "surrogate_of", "projection", "invariant")


def collect(request: Request) -> Collected:
    """Every case that the request's files declare. A generator that raises costs its own cases: one stands for them."""
    cases: list[Case] = []
    targets: dict[str, Target] = {}
    problems: list[ImportProblem] = []
    taken: set[str] = set()
    for file in _left_out(request):
        cases += [_lost(target, file, "", request) for target in _declared_in(file, request)]
    for file in request.case_files:
        request.on_stage("import", file)
        try:
            declarations = _declarations(file, request.root)
        except ImportFailedError as error:
            problems.append(ImportProblem(module=file, path=file, reason=str(error)))
            cases += [_lost(target, file, "", request) for target in _declared_in(file, request)]
            continue
        for declaration in declarations:
            try:
                subject = subject_of(declaration.target, request.root)
            except InputsError as error:
                problem = ImportProblem(module=f"{file}:{declaration.name}", path=file, reason=str(error))
                if not isinstance(declaration.target, str):
                    problems.append(problem)
                elif request.wants(declaration.target):
                    problems.append(problem)
                    cases.append(_lost(declaration.target, file, declaration.name, request))
                continue
            if not request.wants(subject.id):
                continue
            if subject.id not in request.targets:
                targets[subject.id] = subject.target(request.root)
            for case in _cases(declaration, subject, file, request):
                case = renamed(case, taken)
                taken.add(case.id)
                cases.append(case)
    return Collected(cases=tuple(cases), targets=tuple(targets.values()), problems=tuple(problems))


def import_code(case: Case, root: Path) -> None:
    """Import the file that declares a case. Raises `ImportFailedError`."""
    _declarations(_parts(case.reference)[0], root)


def load(case: Case, root: Path) -> LoadedCase:
    """The call that a case means, its inputs made anew. Raises `InputsError`."""
    file, name, index = _parts(case.reference)
    try:
        declarations = _declarations(file, root)
    except ImportFailedError as error:
        raise InputsError(f"{file} cannot be imported: {error}") from error
    declaration = next((each for each in declarations if each.name == name), None)
    if declaration is None:
        raise InputsError(f"{file} declares no cases named {name!r} any more")
    subject = subject_of(declaration.target, root)
    given = _given(declaration, case.device, case.dtype)
    with seeded(seed_of(case.seed, file, name)):
        sample = next(itertools.islice(_samples(declaration, given), index, None), None)
    if sample is None:
        raise InputsError(f"{name} in {file} yields fewer than {index + 1} samples")
    dtype = getattr(torch, case.dtype) if case.dtype != dtype_of((sample.args, sample.kwargs)) else None
    args, kwargs = prepared(sample.args, sample.kwargs, dtype=dtype, device=case.device)
    func = subject.func
    if isinstance(func, torch.nn.Module):
        func = converted_module(func, dtype, case.device)
    return LoadedCase(
        func=func,
        args=args,
        kwargs=kwargs,
        settings=case.settings,
        function_class=subject.function_class,
        op=subject.op,
        references=_references(case.settings, declaration, _sample_options(sample, declaration), root),
    )


def _left_out(request: Request) -> list[str]:
    """Files that declare cases but are not to be imported: importing them has killed a process before."""
    declaring = {place.rpartition(":")[0] for places in request.declared.values() for place in places}
    return sorted(declaring - set(request.case_files))


def _declared_in(file: str, request: Request) -> list[str]:
    """The targets that the sources of a file name, as far as these are selected."""
    places = {target: {each.rpartition(":")[0] for each in places} for target, places in request.declared.items()}
    return [target for target, files in places.items() if file in files and request.wants(target)]


def _lost(target: str, file: str, name: str, request: Request) -> Case:
    """One case that stands for declarations that could not be read: running it says why."""
    options = request.config.settings_for(target)
    case = Case(
        id="",
        target=target,
        name=name.partition("~")[0] or Path(file).stem,
        source=InputSource.DECLARED,
        reference=f"declared:{file}:{name}#0",
        seed=request.config.seed,
        settings=options.settings,
    )
    return _stand_in(case, options.devices, options.dtypes[0] if options.dtypes else "")


def _declarations(file: str, root: Path) -> list[Declaration]:
    path, base, name = _module_of(file, root)
    for folder in (root, root / "src"):  # the project under test, as its own tests find it
        if folder.is_dir():
            put_on_path(folder)
    declared: list[Declaration] = getattr(import_file(path, name, base), REGISTRY, [])
    return declared


@functools.lru_cache(maxsize=256)
def _module_of(file: str, root: Path) -> tuple[Path, Path, str]:
    """The file, its import root and its module name. Kept, for every case asks for it."""
    path = (root / file).resolve()
    base = import_root(path, root.resolve())
    parts = list(path.relative_to(base).with_suffix("").parts)
    return path, base, ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _cases(declaration: Declaration, subject: Subject, file: str, request: Request) -> Iterator[Case]:
    """The cases of one declaration, dtype by dtype where it takes one.

    Samples are looked at on the CPU, so that nothing else is needed to list them.
    """
    options = request.config.settings_for(subject.id, [declaration.options.table])
    takes_dtype = _takes(declaration, "dtype")
    dtypes = options.dtypes or (("float64",) if takes_dtype else ("",))
    case = Case(
        id="",
        target=subject.id,
        name=declaration.name,
        source=InputSource.DECLARED,
        reference=f"declared:{file}:{declaration.name}",
        seed=request.config.seed,
        settings=options.settings,
    )
    if case.reference in request.skip:
        yield _stand_in(replace(case, reference=f"{case.reference}#0"), options.devices, dtypes[0])
        return
    for dtype in dtypes if takes_dtype else dtypes[:1]:
        request.on_stage("inputs", case.reference)
        with seeded(seed_of(request.config.seed, file, declaration.name)):
            yield from _cases_of_run(declaration, case, dtype, request)


def _cases_of_run(declaration: Declaration, common: Case, dtype: str, request: Request) -> Iterator[Case]:
    """The cases of one run of a generator. Where it fails, one case stands for the samples that are missing."""
    takes_dtype = _takes(declaration, "dtype")
    samples = _samples(declaration, _given(declaration, "cpu", dtype or "float64"))
    for index in itertools.count():
        case = replace(common, reference=f"{common.reference}#{index}")
        try:
            sample = next(samples, None)
            if sample is None:
                return
            own = _sample_options(sample, declaration)
        except InputsError:
            options = request.config.settings_for(case.target, [declaration.options.table])
            yield _stand_in(case, options.devices, dtype)
            return
        settled = request.config.settings_for(case.target, [declaration.options.table, own.table])
        case = replace(case, name=_name(sample, declaration, index))
        yield from _by_place(
            case, sample, settled, (dtype,) if takes_dtype else settled.dtypes or ("",), declaration, own
        )


def _by_place(
    case: Case, sample: Sample, settled: TargetOptions, dtypes: tuple[str, ...], declaration: Declaration, own: Options
) -> Iterator[Case]:
    """One case per device and dtype. What is declared for others only is skipped, and says so."""
    natural = dtype_of((sample.args, sample.kwargs))
    declared_dtypes = own.table.dtypes or declaration.options.table.dtypes
    declared_devices = own.table.devices or declaration.options.table.devices
    for device in settled.devices:
        for dtype in dtypes:
            chosen = dtype or natural
            reason = ""
            if declared_dtypes and chosen not in declared_dtypes:
                reason = f"declared for {', '.join(declared_dtypes)} only"
            if declared_devices and device.partition(":")[0] not in {
                each.partition(":")[0] for each in declared_devices
            }:
                reason = f"declared for {', '.join(declared_devices)} only"
            settings = replace(settled.settings, skip=settled.settings.skip or reason)
            yield _placed(replace(case, settings=settings), device, chosen)


def _placed(case: Case, device: str, dtype: str) -> Case:
    return replace(case, id=case_id(case.target, case.name, device, dtype), device=device, dtype=dtype)


def _stand_in(case: Case, devices: tuple[str, ...], dtype: str) -> Case:
    """One case for a generator that does not give its samples: running it says why."""
    return _placed(case, devices[0] if devices else "cpu", dtype or "float64")


def _name(sample: Sample, declaration: Declaration, index: int) -> str:
    if sample.name:
        return sample.name
    if index < len(declaration.ids):
        return declaration.ids[index]
    shapes = shapes_text([sample.args, sample.kwargs])
    base = declaration.name.partition("~")[0].rpartition(".")[2].strip("_") or "sample"
    return f"{base}-{shapes}" if shapes else base


def _takes(declaration: Declaration, parameter: str) -> bool:
    return parameter in inspect.signature(declaration.generator).parameters


def _given(declaration: Declaration, device: str, dtype: str) -> dict[str, Any]:
    values = {"device": device, "dtype": getattr(torch, dtype)}
    return {name: value for name, value in values.items() if _takes(declaration, name)}


def _samples(declaration: Declaration, given: Mapping[str, Any]) -> Iterator[Sample]:
    """Runs a generator. Raises `InputsError` for what it raises and for what it should not yield."""
    iterator: Iterator[Any] | None = None
    for index in range(_SAMPLE_CAP + 1):
        try:
            if iterator is None:
                iterator = iter(declaration.generator(**given))
            sample = next(iterator, None)
        except Exception as error:
            raise InputsError(f"{declaration.name} raised {one_line(error)}") from error
        if sample is None:
            return
        if not isinstance(sample, Sample):
            found = type(sample).__name__
            raise InputsError(f"{declaration.name} must yield gradbot.Sample(...), found {found} at index {index}")
        yield sample
    raise InputsError(f"{declaration.name} yields more than {_SAMPLE_CAP} samples")


def _sample_options(sample: Sample, declaration: Declaration) -> Options:
    try:
        return read_options(sample.declared, declaration.name, {"reason": declaration.options.table.reason})
    except UsageError as error:
        raise InputsError(str(error)) from None


def _references(settings: CheckSettings, declaration: Declaration, own: Options, root: Path) -> References:
    """The callables that hold: the sample's, else the declaration's, else what the configuration names."""
    found: dict[str, Any] = {}
    for name in _REFERENCES:
        if name in own.callables:
            found[name] = own.callables[name]
        elif getattr(own.table, name) is None and name in declaration.options.callables:
            found[name] = declaration.options.callables[name]
        elif text := getattr(settings, name):
            found[name] = resolve(text, root)
    return References(**found)


def _parts(reference: str) -> tuple[str, str, int]:
    place, _, index = reference.partition(":")[2].rpartition("#")
    file, _, name = place.rpartition(":")
    if not file or not index.isdigit():
        raise InputsError(f"not a reference to a declared sample: {reference!r}")
    return file, name, int(index)
