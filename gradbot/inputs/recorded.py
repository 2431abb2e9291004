"""Recorded inputs: the committed files of `gradbot record` as cases, and from a case back to the call.

A reference reads `recorded:<file>#<key>`, the file relative to the project, the key a hash of the call's signature, so
that it stays when other samples come and go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.references import References
from gradbot.errors import UsageError
from gradbot.inputs.source import Collected, InputsError, LoadedCase, Request, StaleRecordingError, case_id, renamed
from gradbot.inputs.targets import resolve, subject_of
from gradbot.inputs.tensors import dtype_of, prepared, shapes_text
from gradbot.model import Case, CheckSettings, ImportProblem, InputSource
from gradbot.record.assumed import Assumption, require_grad
from gradbot.record.store import TENSORS, Entry, read_target
from gradbot.record.values import decode_value

_NO_GRAD = "this call asked for no gradient, and other recorded calls say by what one may"
_REFERENCES = ("reference", "surrogate_of", "projection", "invariant")


def collect(request: Request) -> Collected:
    """The recorded cases of the request's targets. A file that cannot be read is a problem and costs only itself."""
    cases: list[Case] = []
    problems: list[ImportProblem] = []
    taken: set[str] = set()
    folder = request.root / request.config.recorded
    for path in sorted(folder.glob("*.json")):
        shown = _shown(path, request.root)
        try:
            target, samples = read_target(path)
        except UsageError as error:
            problems.append(ImportProblem(module=shown, path=shown, reason=str(error)))
            continue
        if target not in request.targets or not request.config.selects_target(target):
            continue
        telling = any(sample["requires_grad"] for sample in samples)
        for sample in samples:
            skip = _NO_GRAD if telling and not sample["requires_grad"] else ""
            for case in _cases(target, sample, shown, request, skip):
                case = renamed(case, taken)
                taken.add(case.id)
                cases.append(case)
    return Collected(cases=tuple(cases), problems=tuple(problems))


def _cases(target: str, sample: Entry, file: str, request: Request, skip: str) -> Iterator[Case]:
    options = request.config.settings_for(target)
    name = _name(sample)
    natural = _natural_dtype(sample)
    for device in options.devices:
        for dtype in options.dtypes or (natural,):
            settings = options.settings
            if skip and not settings.skip:
                settings = replace(settings, skip=skip)
            yield Case(
                id=case_id(target, name, device, dtype),
                target=target,
                name=name,
                source=InputSource.RECORDED,
                reference=f"recorded:{file}#{_key(sample)}",
                device=device,
                dtype=dtype,
                seed=request.config.seed,
                settings=settings,
                test_id=str(sample.get("test", "")),
            )


def load(case: Case, root: Path) -> LoadedCase:
    """The recorded call, on the case's device and in its dtype. Raises `InputsError`."""
    file, _, key = case.reference.partition(":")[2].rpartition("#")
    path = root / file
    try:
        target, samples = read_target(path)
    except UsageError as error:
        raise InputsError(str(error)) from None
    sample = next((each for each in samples if _key(each) == key), None)
    if sample is None:
        raise StaleRecordingError(f"{file} has no sample {key} any more")
    subject = subject_of(target, root)
    args, kwargs = _arguments(sample, path)
    dtype = getattr(torch, case.dtype) if case.dtype != dtype_of((args, kwargs)) else None
    args, kwargs = prepared(args, kwargs, dtype=dtype, device=case.device)
    assumed = Assumption() if sample["requires_grad"] else require_grad(subject.func, args, kwargs)
    return LoadedCase(
        func=subject.func,
        args=args,
        kwargs=kwargs,
        settings=replace(case.settings, skip=assumed.skip) if assumed.skip else case.settings,
        function_class=subject.function_class,
        op=subject.op,
        references=_references(case.settings, root),
        notes=assumed.notes,
    )


def _arguments(sample: Entry, path: Path) -> tuple[tuple[Any, ...], dict[str, Any]]:
    attached = _attached(path.parent / TENSORS)
    try:
        args = tuple(decode_value(raw, attached) for raw in sample["args"])
        kwargs = {name: decode_value(raw, attached) for name, raw in sample["kwargs"].items()}
    except (KeyError, ValueError, TypeError, AttributeError, ImportError) as error:
        raise StaleRecordingError(f"{path.name} cannot be read back, {type(error).__name__}: {error}") from None
    return args, kwargs


def _attached(path: Path) -> Callable[[str], Tensor]:
    # here, so that recordings without large exact tensors need no safetensors
    def load(name: str) -> Tensor:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                tensor: Tensor = file.get_tensor(name)
                return tensor
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{path.name}: {error}") from None

    return load


def _references(settings: CheckSettings, root: Path) -> References:
    return References(**{name: resolve(text, root) for name in _REFERENCES if (text := getattr(settings, name))})


def _natural_dtype(sample: Entry) -> str:
    found = [raw for raw in _tensors([sample["args"], sample["kwargs"]]) if _is_differentiable(str(raw["dtype"]))]
    checked = [raw for raw in found if raw.get("requires_grad")] or found
    return str(checked[0]["dtype"]) if checked else "float64"


def _is_differentiable(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def _tensors(raw: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(raw, Mapping):
        if "tensor" in raw:
            yield raw["tensor"]
            return
        raw = list(raw.values())
    if isinstance(raw, list):
        for item in raw:
            yield from _tensors(item)


def _name(sample: Entry) -> str:
    shapes = [torch.empty(raw["shape"], device="meta") for raw in _tensors([sample["args"], sample["kwargs"]])]
    return f"recorded-{shapes_text(shapes)}" if shapes else "recorded"


def _key(sample: Entry) -> str:
    return hashlib.sha256(str(sample["signature"]).encode()).hexdigest()[:10]


def _shown(path: Path, root: Path) -> str:
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()
