"""Whether an analytical and a numerical Jacobian agree, entry by entry, and the error to raise where they do not.

An entry may differ by `atol + rtol * |numerical|`. As in torch, the two parts of a complex input (in forward mode: of a
complex output) make one complex number, and the two parts of a complex output (input) are looked at one by one. What
differs is looked at again over a range of steps before it is called wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gradbot.engine.compat.evidence import evidence
from gradbot.engine.compat.failures import GradcheckError, failure, finding
from gradbot.engine.compat.layouts import Coordinates
from gradbot.engine.compat.numerical import Numerical
from gradbot.engine.compat.options import Options
from gradbot.engine.compat.outputs import Outputs
from gradbot.engine.compat.refine import RESOLUTION, ladder
from gradbot.engine.compat.subject import Subject
from gradbot.phrases import phrase

UNRELIABLE = 8.0
"""Even entries that agree are looked at again if rounding may hide this many tolerances of the row's largest entry."""

ROUNDINGS = 4.0
"""Where no step resolves an entry, it may differ by this many times what a unit in the last place does to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The Jacobians of one output by one input: outputs down, inputs across, complex as pairs of rows or columns.

    `bars` bound the error of the numerical entries that were looked at again, `confirmed` says which were.
    """

    output: int  # among differentiable outputs
    input: int  # among checked inputs
    output_tensor: Tensor
    coordinates: Coordinates
    analytical: Tensor
    numerical: Tensor
    bars: Tensor
    forward: bool

    def groups(self, entries: Tensor) -> Tensor:
        """Entries with the parts that make one number in a last dimension."""
        rows, width = entries.shape
        if self.forward:
            parts = 2 if self.output_tensor.is_complex() else 1
            return entries.reshape(rows // parts, parts, width).transpose(1, 2)
        parts = len(self.coordinates.parts)
        return entries.reshape(rows, width // parts, parts)

    def wrong(self, options: Options) -> Tensor:
        """Which numbers differ by more than is allowed; not-a-number and unlike infinities always do."""
        analytical, numerical = self.groups(self.analytical), self.groups(self.numerical)
        error: Tensor = torch.where(analytical == numerical, 0.0, analytical - numerical).norm(dim=-1)
        return ~((error <= self.allowed(options)) & error.isfinite())

    def allowed(self, options: Options) -> Tensor:
        """What each number may differ by."""
        numerical: Tensor = self.groups(self.numerical).norm(dim=-1)
        bars: Tensor = self.groups(self.bars).norm(dim=-1)
        return options.atol + options.rtol * numerical + bars

    def spread(self, groups: Tensor) -> Tensor:
        """A property of numbers as one of entries."""
        if self.forward:
            parts = 2 if self.output_tensor.is_complex() else 1
            return groups.repeat_interleave(parts, 0)
        return groups.repeat_interleave(len(self.coordinates.parts), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a second look needs: the function, its outputs at the inputs, and the options."""

    subject: Subject
    base: Outputs
    options: Options
    steepness: Tensor = field(default_factory=lambda: torch.zeros(0, device="cpu"))  # largest slope of every row


def pair_of(
    scene: Scene,
    output: int,
    position: int,
    input: int,
    coordinates: Coordinates,
    analytical: Tensor,
    numerical: Numerical,
    *,
    forward: bool,
) -> tuple[Pair, Tensor]:
    """The Jacobians of output `position` (the `output`-th checked one), and which numerical entries may be noise."""
    own = scene.base.rows[position]
    entries = numerical.jacobian[own]
    pair = Pair(
        output=output,
        input=input,
        output_tensor=scene.base.all[position],
        coordinates=coordinates,
        analytical=analytical,
        numerical=entries,
        bars=torch.zeros_like(entries),
        forward=forward,
    )
    # on the scale of the row: small entries beside large ones are as noisy in any difference quotient
    scale = entries.abs().nan_to_num(0.0, 0.0, 0.0).amax(1, keepdim=True) if entries.numel() else entries.abs()
    allowed = scene.options.atol + scene.options.rtol * scale
    return pair, numerical.rounding[own] > UNRELIABLE * allowed


def settle(scene: Scene, pair: Pair, doubtful: Tensor, numerical: Numerical, rows: slice) -> Pair:
    """Looks again at the columns that disagree or may be noise, until one stays wrong.

    Where a range of steps resolves a slope, the one with the smallest error bar replaces the first estimate.
    """
    wrong = pair.spread(pair.wrong(scene.options)) | doubtful
    if not wrong.any():
        return pair
    error = torch.where(wrong, (pair.analytical - pair.numerical).abs().nan_to_num(torch.inf, torch.inf), -1.0)
    # both parts of a complex input make one number: its columns go together
    width = 1 if pair.forward else len(pair.coordinates.parts)
    order = error.amax(0).reshape(-1, width).amax(1).argsort(descending=True)
    for group in order.tolist():
        together = range(group * width, (group + 1) * width)
        for number in together:
            if wrong[:, number].any():
                pair = _settle_column(scene, pair, wrong[:, number], number, numerical, rows)
        if pair.spread(pair.wrong(scene.options))[:, together].any():
            break
    return pair


def _settle_column(scene: Scene, pair: Pair, wrong: Tensor, number: int, numerical: Numerical, rows: slice) -> Pair:
    steps = ladder(scene.subject, scene.base, pair.coordinates, numerical.columns[number])
    allowed = torch.full_like(steps.slopes[0], scene.options.atol)
    allowed[rows] += scene.options.rtol * pair.analytical[:, number].abs().nan_to_num(0.0, 0.0)
    slopes, bars, believed = (each[rows] for each in steps.best(allowed))
    taken = wrong & believed
    entries, widths = pair.numerical.clone(), pair.bars.clone()
    entries[taken, number], widths[taken, number] = slopes[taken], bars[taken]
    # a faint entry that no step resolves is not wrong as long as the rounding of a steep output explains it
    rounding = ROUNDINGS * numerical.rounding[rows, number]
    unresolved = wrong & ~believed & (rounding <= RESOLUTION * scene.steepness[rows])
    widths[unresolved, number] = rounding[unresolved]
    return replace(pair, numerical=entries, bars=widths)


def mismatch(scene: Scene, pair: Pair, kind: str) -> GradcheckError | None:
    """The error for a pair that is wrong, in torch's words; None where it agrees."""
    wrong = pair.wrong(scene.options)
    if not wrong.any():
        return None
    entries = pair.spread(wrong)
    prefix = _prefix(pair, entries)
    mode = "computed with forward mode " if pair.forward else ""
    difference = (pair.groups(pair.analytical) - pair.groups(pair.numerical)).norm(dim=-1).max().item()
    place = phrase("mismatch", prefix=prefix, mode=mode, output=pair.output, input=pair.input)
    text = f"{place}\nnumerical:{_shown(pair, pair.numerical)}\nanalytical:{_shown(pair, pair.analytical)}\n"
    if scene.options.fast_mode:
        text += f"\n{phrase('largest_difference', largest=difference)}\n"
    found = finding(
        kind,
        "forward_ad" if pair.forward else "backward",
        output=pair.output,
        input=pair.input,
        evidence=evidence(pair, entries, pair.spread(pair.allowed(scene.options))),
        details={"largest_error": difference, "order": scene.subject.order},
    )
    return failure(text, found)


def imaginary_first(pair: Pair, options: Options) -> bool:
    """Whether the imaginary part of a complex output (forward: input) is wrong, which torch looks at first."""
    return _prefix(pair, pair.spread(pair.wrong(options))).startswith("While considering the imaginary")


def _prefix(pair: Pair, wrong: Tensor) -> str:
    if pair.forward:
        parts, element, wrong = len(pair.coordinates.parts), "inputs", wrong.T
    else:
        parts, element = (2 if pair.output_tensor.is_complex() else 1), "outputs"
    if parts == 1:
        return ""
    imaginary = bool(wrong[1::2].any())
    return f"While considering the {'imaginary' if imaginary else 'real'} part of complex {element} only, "


def _shown(pair: Pair, entries: Tensor) -> Tensor:
    """Entries as torch prints them: inputs down, outputs across, complex where parts make one number."""
    grouped = pair.groups(entries)
    numbers = torch.view_as_complex(grouped.contiguous()) if grouped.shape[-1] == 2 else grouped.squeeze(-1)
    return numbers.T
