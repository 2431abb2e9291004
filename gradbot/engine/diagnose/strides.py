"""grad_output's strides ignored: the backward reads its memory in order, whatever its layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gradbot.engine.diagnose.prediction import THRESHOLD
from gradbot.engine.directional import flat
from gradbot.model import Diagnosis

Values = Sequence["Tensor | None"]


def strides_ignored(
    vjp: Callable[[list[Tensor]], Values], cotangents: Sequence[Tensor], found: Values, right: Values
) -> Diagnosis | None:
    """Whether `found`, the gradients for `cotangents`, are those of their memory read in order.

    `right` are the gradients for contiguous copies. None where the memory is too short to be read so.
    """
    misread = [_in_order(each) for each in cotangents]
    if any(each is None for each in misread):
        return None
    predicted = vjp([each for each in misread if each is not None])
    error, left = 0.0, 0.0
    for own, expected, true in zip(found, predicted, right, strict=True):
        if own is None or expected is None or true is None:
            continue
        error += float((_numbers(own) - _numbers(true)).square().sum())
        left += float((_numbers(own) - _numbers(expected)).square().sum())
    if not error:
        return None
    residual = (left / error) ** 0.5
    if not residual <= THRESHOLD:
        return None
    return Diagnosis(pattern="grad_output_strides", residual=residual, threshold=THRESHOLD)


def _in_order(tensor: Tensor) -> Tensor | None:
    if tensor.layout is not torch.strided:
        return None
    available = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    if available < tensor.numel():
        return None
    contiguous = torch.empty(tensor.shape, device="meta").stride()
    return tensor.as_strided(tensor.shape, contiguous, tensor.storage_offset()).clone()


def _numbers(tensor: Tensor) -> Tensor:
    return flat(torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).nan_to_num()
