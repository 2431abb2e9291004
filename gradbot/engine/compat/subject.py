"""What is checked: a function, its arguments, and which of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor

from gradbot.engine.compat.advice import warn as warn_caller
from gradbot.engine.compat.failures import refuse
from gradbot.engine.compat.layouts import SPARSE
from gradbot.engine.compat.memory import has_zero_stride, overlaps_itself, share_memory
from gradbot.phrases import phrase


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A function at a point. `checked` are the positions of the tensors that require grad, `order` 1 or 2."""

    func: Callable[..., object]
    arguments: tuple[object, ...]
    checked: tuple[int, ...]
    order: int = 1

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The checked inputs."""
        return tuple(self.arguments[position] for position in self.checked)  # type: ignore[misc]

    def with_tensor(self, original: Tensor, replacement: Tensor) -> tuple[object, ...]:
        """The arguments with `replacement` wherever `original` stands: one tensor passed twice is one variable."""
        if replacement is original:
            return self.arguments
        return tuple(replacement if each is original else each for each in self.arguments)


def as_tuple(value: object) -> tuple[object, ...]:
    """A tuple or list as a tuple, anything else as a tuple of one."""
    if isinstance(value, tuple):
        return value
    return tuple(value) if isinstance(value, list) else (value,)


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether `value` is a tensor or something that acts as one."""
    overrides: Any = torch.overrides
    return bool(overrides.is_tensor_like(value))


def is_checked(value: object) -> TypeGuard[Tensor]:
    """Whether a derivative by `value` is checked."""
    return is_tensor(value) and value.requires_grad


def subject_of(func: Callable[..., object], inputs: object, order: int = 1, *, warn: bool = True) -> Subject:
    """Looks the inputs over: warns of low precision if `warn`, refuses what cannot be checked.

    Unchecked tensors that share memory with checked ones are copied, so that a step in one leaves the others alone.

    Raises:
        ValueError: nothing requires grad, or something that does is hidden inside an argument.
        RuntimeError: a checked tensor overlaps itself or another one.
    """
    arguments = as_tuple(inputs)
    checked = tuple(position for position, each in enumerate(arguments) if is_checked(each))
    for position in checked:
        _look_over(arguments[position], position, warn)  # type: ignore[arg-type]
    if not checked:
        raise refuse(ValueError, "inputs_no_requires_grad", phrase("inputs_no_requires_grad"))
    for position, each in enumerate(arguments):
        if not is_tensor(each) and any(is_checked(tensor) for tensor in _inside(each)):
            raise refuse(
                ValueError,
                "nested_input",
                phrase("nested_input", input=position, type=type(each).__name__),
                input=position,
            )
    _refuse_shared_memory(arguments, checked)
    own = tuple(_apart(each, arguments, checked) for each in arguments)
    return Subject(func=func, arguments=own, checked=checked, order=order)


def _look_over(tensor: Tensor, position: int, warn: bool) -> None:
    if warn and tensor.dtype not in (torch.float64, torch.complex128):
        warn_caller(phrase("double_precision_warning", input=position))
    if has_zero_stride(tensor):
        raise refuse(RuntimeError, "overlapping_memory", phrase("zero_stride", input=position), input=position)


def _refuse_shared_memory(arguments: tuple[object, ...], checked: tuple[int, ...]) -> None:
    seen: dict[int, Tensor] = {}
    for position in checked:
        tensor: Tensor = arguments[position]  # type: ignore[assignment]
        if overlaps_itself(tensor):
            raise refuse(RuntimeError, "overlapping_memory", phrase("overlaps_itself", input=position), input=position)
        for earlier, other in seen.items():
            if other is not tensor and share_memory(other, tensor):
                raise refuse(
                    RuntimeError,
                    "overlapping_memory",
                    phrase("overlaps_another", other=earlier, input=position),
                    input=position,
                )
        seen[position] = tensor


def _apart(each: object, arguments: tuple[object, ...], checked: tuple[int, ...]) -> object:
    if isinstance(each, Tensor) and not each.requires_grad and each.layout in (torch.strided, *SPARSE):
        for position in checked:
            if share_memory(arguments[position], each):  # type: ignore[arg-type]
                return each.clone()
    return each


def _inside(value: object, depth: int = 0) -> Iterable[object]:
    """Everything inside containers, to a bounded depth."""
    if depth > 8 or isinstance(value, (str, bytes, Tensor)):
        return
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield each
            yield from _inside(each, depth + 1)
