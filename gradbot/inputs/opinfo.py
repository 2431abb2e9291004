"""Inputs from OpInfo entries: torch's own database, or a project's own entries and subclasses.

    from torch.testing._internal.common_methods_invocations import op_db
    gradbot.from_opinfo(op_db, names=["nn.functional.gelu"])

In a file of cases, this declares the samples of every entry, as its tests in torch would use them: its
`gradcheck_wrapper`, `output_process_fn_grad`, `gradcheck_nondet_tol`, `supports_*` flags and expected failures hold.
"""

from __future__ import annotations

import inspect
import itertools
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from gradbot.errors import UsageError
from gradbot.inputs.declared import Declaration, Sample, read_options, register
from gradbot.model import CheckName

_TESTS: Mapping[CheckName, tuple[str, str]] = {
    CheckName.BACKWARD: ("TestBwdGradients", "test_fn_grad"),
    CheckName.DOUBLE_BACKWARD: ("TestBwdGradients", "test_fn_gradgrad"),
    CheckName.FORWARD_AD: ("TestFwdGradients", "test_forward_mode_AD"),
    CheckName.FORWARD_OVER_BACKWARD: ("TestFwdGradients", "test_fn_fwgrad_bwgrad"),
}
"""The tests in torch's suite that make these checks; an entry's skips and decorators name them."""

_KINDS: Mapping[CheckName, tuple[str, ...]] = {
    CheckName.BACKWARD: ("jacobian_mismatch_backward", "user_error_in_backward"),
    CheckName.DOUBLE_BACKWARD: ("jacobian_mismatch_double_backward", "not_twice_differentiable"),
    CheckName.FORWARD_AD: ("jacobian_mismatch_forward", "user_error_in_jvp"),
    CheckName.FORWARD_OVER_BACKWARD: ("jacobian_mismatch_forward_over_backward",),
}
"""What an expected failure of a check may be found as."""

_FLAGS: Mapping[str, tuple[CheckName, ...]] = {
    "supports_autograd": tuple(CheckName),
    "supports_gradgrad": (CheckName.DOUBLE_BACKWARD, CheckName.FORWARD_OVER_BACKWARD),
    "supports_forward_ad": (CheckName.FORWARD_AD, CheckName.BATCHED_FORWARD_GRAD, CheckName.FORWARD_OVER_BACKWARD),
    "supports_fwgrad_bwgrad": (CheckName.FORWARD_OVER_BACKWARD,),
    "check_batched_grad": (CheckName.BATCHED_GRAD,),
    "check_batched_forward_grad": (CheckName.BATCHED_FORWARD_GRAD,),
}


def from_opinfo(
    entries: Any,
    *,
    names: Iterable[str] = (),
    dtypes: Iterable[torch.dtype] = (torch.float64,),
    device: str = "cpu",
    limit: int = 4,
    **options: Any,
) -> tuple[str, ...]:
    """Declare the samples of OpInfo entries (one, or an iterable) in the calling module; returns their names.

    `names` picks entries by name, all if empty. Each entry that supports autograd in one of `dtypes` gives its first
    `limit` samples whose inputs require grad. `options` are those of `gradbot.cases` and win over the entry's own.
    Raises `UsageError` for what is no OpInfo and for names that no entry has.
    """
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    several = [entries] if hasattr(entries, "sample_inputs") else list(entries)
    for entry in several:
        if not hasattr(entry, "sample_inputs"):
            raise UsageError(f"from_opinfo: expected OpInfo entries, found {type(entry).__name__}")
    wanted = set(names)
    missing = wanted - {name for entry in several for name in (entry.name, _full_name(entry))}
    if missing:
        raise UsageError(f"from_opinfo: no entry is called {', '.join(sorted(missing))}")
    declared = []
    for entry in several:
        if wanted and not wanted & {entry.name, _full_name(entry)}:
            continue
        declared += [
            _declare(frame.f_back.f_globals, entry, dtype, device, limit, options)
            for dtype in dtypes
            if entry.supports_autograd and dtype in entry.supported_dtypes(torch.device(device).type)
        ]
    return tuple(declared)


def _full_name(entry: Any) -> str:
    variant = getattr(entry, "variant_test_name", "")
    return f"{entry.name}.{variant}" if variant else str(entry.name)


def _declare(
    module: dict[str, Any], entry: Any, dtype: torch.dtype, device: str, limit: int, options: Mapping[str, Any]
) -> str:
    name = f"opinfo-{_full_name(entry)}-{str(dtype).removeprefix('torch.')}"
    own = {**_options(entry, dtype, device), **options}
    read = read_options(own, f"from_opinfo of {_full_name(entry)}", {})

    def generator() -> Iterator[Sample]:
        yield from itertools.islice(_samples(entry, dtype, device), limit)

    generator.__qualname__ = name
    target = _named(_caller(entry), f"opinfo.{_full_name(entry)}", module)
    register(module, Declaration(name=name, target=target, generator=generator, options=read))
    return name


def _named(function: Callable[..., Any], name: str, module: Mapping[str, Any]) -> Callable[..., Any]:
    function.__qualname__, function.__module__ = name, str(module["__name__"])
    return function


def _caller(entry: Any) -> Callable[..., Any]:
    """The entry's op as torch's gradient tests call it; `process` is the sample's `output_process_fn_grad`."""

    def call(process: Callable[[Any], Any] | None, value: Any, *args: Any, **kwargs: Any) -> Any:
        out = entry.gradcheck_wrapper(entry.get_op(), value, *args, **kwargs)
        return out if process is None else process(out)

    return call


def _samples(entry: Any, dtype: torch.dtype, device: str) -> Iterator[Sample]:
    for index, sample in enumerate(entry.sample_inputs(device, dtype, requires_grad=True)):
        arguments = (sample.input, *sample.args, *sample.kwargs.values())
        tensors = torch.utils._pytree.tree_leaves(arguments)
        if any(isinstance(each, torch.Tensor) and each.requires_grad for each in tensors):
            process = sample.output_process_fn_grad
            yield Sample(process, sample.input, *sample.args, **sample.kwargs).named(f"sample-{index}")


def _options(entry: Any, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """What an entry says of its own gradients, as options of `gradbot.cases`."""
    left_out = {check for flag, checks in _FLAGS.items() if getattr(entry, flag, True) is False for check in checks}
    expected = []
    for check, test in _TESTS.items():
        marks = _marks(entry, test, dtype, device)
        if _expects_failure(marks):
            expected.append(check)
        elif marks:
            left_out.add(check)
    options: dict[str, Any] = {
        "nondet_tol": entry.gradcheck_nondet_tol,
        "skip_checks": sorted(check.value for check in left_out),
    }
    if expected:
        names = ", ".join(check.value for check in expected)
        reason = f"the OpInfo entry expects {names} to fail"
        kinds = [kind for check in expected for kind in _KINDS[check]]
        options |= {"expect": "failure", "expect_kinds": kinds, "reason": reason}
    return options


def _marks(entry: Any, test: tuple[str, str], dtype: torch.dtype, device: str) -> list[Any]:
    """The decorators that an entry puts on one of torch's tests: skips and expected failures."""
    kind = torch.device(device).type
    return [
        decorator
        for info in (*entry.skips, *entry.decorators)
        if (getattr(info, "cls_name", ""), getattr(info, "test_name", "")) == test
        and info.is_active(*test, kind, dtype, {})
        for decorator in info.decorators
        if _expects_failure([decorator]) or "skip" in getattr(decorator, "__qualname__", "")
    ]


def _expects_failure(marks: Iterable[Any]) -> bool:
    return any(mark is unittest.expectedFailure for mark in marks)
