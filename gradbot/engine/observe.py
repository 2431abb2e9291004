"""Calling a function once and seeing what it does beside computing: write in place, draw random numbers, raise."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradbot.engine.names import named_arguments
from gradbot.engine.subject import Subject
from gradbot.engine.user_errors import one_line
from gradbot.model import Note


class UserCodeError(Exception):
    """User code raised; `stage` says where, `__cause__` what."""

    def __init__(self, stage: str, cause: BaseException):
        super().__init__(f"{stage} raised {one_line(cause)}")
        self.stage = stage
        self.__cause__ = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Names of what a call changed: checked inputs, buffers of modules, other arguments."""

    inputs: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


def first_call(subject: Subject, seed: int) -> tuple[Subject, tuple[Any, ...], Observed, tuple[Note, ...]]:
    """Calls the function once on the user's own tensors and sees what it does beside computing."""
    watched = _watched(subject)
    kept = {id(each): each.detach().clone() for _, each in watched}
    before = _random_states()
    try:
        with torch.enable_grad():
            outputs = subject.call(subject.inputs)
    except RuntimeError as error:
        if "in-place" not in str(error):
            raise UserCodeError("forward", error) from error
        subject = subject.changed(clones=True)
        _restore(watched, kept)
        outputs = _guarded_call(subject)
    except Exception as error:
        raise UserCodeError("forward", error) from error
    draws = _random_states() != before
    changed = {id(each): name for name, each in watched if not _unchanged(each, kept[id(each)])}
    freed = [name for name, each in watched if _freed(each)]
    _restore(watched, kept)
    inputs = {id(each) for each in subject.inputs}
    buffers = {id(each) for module in subject.modules for each in module.buffers()}
    observed = Observed(
        inputs=tuple(name for key, name in changed.items() if key in inputs and name not in freed),
        buffers=tuple(name for key, name in changed.items() if key in buffers),
        arguments=tuple(name for key, name in changed.items() if key not in inputs and key not in buffers),
    )
    fresh = tuple(each for _, each in watched if id(each) in changed and id(each) not in inputs)
    again = bool(changed) or draws
    subject = subject.changed(
        fresh=fresh, clones=subject.clones or bool(inputs & changed.keys()), seed=seed if draws else None
    )
    notes = (Note(code="random_replayed"),) if draws else ()
    if freed:
        notes = (*notes, Note(code="inputs_freed", details={"inputs": ", ".join(freed)}))
    # once more under the circumstances of every later call, so that all see the same values
    return subject, _guarded_call(subject) if again else outputs, observed, notes


def _guarded_call(subject: Subject) -> tuple[Any, ...]:
    try:
        with torch.enable_grad():
            return subject.call(subject.inputs)
    except Exception as error:
        raise UserCodeError("forward", error) from error


def _watched(subject: Subject) -> list[tuple[str, Tensor]]:
    found: dict[int, tuple[str, Tensor]] = {
        id(each): (name, each) for name, each in zip(subject.input_names, subject.inputs, strict=True)
    }
    taken = {id(each) for each in subject.originals}
    for name, leaf in named_arguments(subject.func, subject.args, dict(subject.kwargs)):
        if isinstance(leaf, Tensor) and id(leaf) not in taken:
            found.setdefault(id(leaf), (name, leaf))
    for module in subject.modules:
        for name, buffer in module.named_buffers():
            found.setdefault(id(buffer), (name, buffer))
    return list(found.values())


def _restore(watched: Sequence[tuple[str, Tensor]], kept: Mapping[int, Tensor]) -> None:
    with torch.no_grad():
        for _, each in watched:
            if _freed(each) or each.shape != kept[id(each)].shape:
                each.data = kept[id(each)].clone()
            elif not equal(each, kept[id(each)]):
                each.data.copy_(kept[id(each)])


def _unchanged(tensor: Tensor, kept: Tensor) -> bool:
    return not _freed(tensor) and equal(tensor, kept)


def _freed(tensor: Tensor) -> bool:
    """Whether the memory of a tensor is gone, so that reading it would end the process."""
    if tensor.layout is not torch.strided or tensor.is_mkldnn or not tensor.numel():
        return False
    last = tensor.storage_offset() + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return tensor.untyped_storage().nbytes() < (last + 1) * tensor.element_size()


def equal(left: Tensor, right: Tensor) -> bool:
    """Equal values, NaN equal to NaN, in any layout."""
    if left.shape != right.shape:
        return False
    if left.layout is not torch.strided or left.is_mkldnn:
        return all(equal(a, b) for a, b in zip(_parts(left), _parts(right), strict=True))
    if left.dtype is torch.complex32:  # has neither equal nor isnan
        left, right = torch.view_as_real(left), torch.view_as_real(right)
    if torch.equal(left, right):
        return True
    return is_inexact(left) and bool(((left == right) | (left.isnan() & right.isnan())).all())


def _parts(tensor: Tensor) -> tuple[Tensor, ...]:
    detached = tensor.detach()
    if detached.is_mkldnn:
        return (detached.to_dense(),)
    if detached.layout is torch.sparse_coo:
        return detached._indices(), detached._values()
    return (detached.values(),)


def _random_states() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    states = [torch.get_rng_state(), *cuda]
    return (
        tuple(bytes(each.numpy().tobytes()) for each in states),
        random.getstate(),
        None if numpy is None else str(numpy.random.get_state()[1:3]),
    )


def is_inexact(value: object) -> bool:
    """Whether a value is a floating-point or complex tensor."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
