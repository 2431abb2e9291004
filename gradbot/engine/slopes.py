"""Rows of outputs along one direction: one-sided slopes, and what they say of the gradient that is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradbot.engine.localise import DEFAULT_ATOL, DEFAULT_RTOL
from gradbot.model import CheckSettings

STEPS = (2.0**-17, 2.0**-20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """What rows are along one direction: exactly one of these, or none where slopes are not defined."""

    smooth: Tensor
    kink: Tensor
    jump: Tensor
    edge: Tensor  # one side is undefined, or a slope is infinite, or the gradient is not a number where there is a kink


@dataclass(frozen=True, slots=True, kw_only=True)
class Along:
    """Rows along one direction: the analytical value, one-sided slopes at two steps, analytical values around."""

    own: Tensor
    slopes: tuple[tuple[Tensor, Tensor], ...]
    around: Tensor  # (neighbours, rows)
    rounding: Tensor
    length: float  # of the direction, in the input's own units
    single: bool  # one element of the input moves alone

    def at(self, places: Tensor, around: Tensor) -> Along:
        """The same for some of the rows, with other gradients around."""
        return replace(
            self,
            own=self.own[places],
            slopes=tuple((ahead[places], behind[places]) for ahead, behind in self.slopes),
            around=around,
            rounding=self.rounding[places],
        )

    def sort(self, settings: CheckSettings) -> Sort:
        """Smooth, kink, jump or edge."""
        (far_ahead, far_behind), (ahead, behind) = self.slopes
        finite = torch.isfinite(ahead) & torch.isfinite(behind)
        gap, far_gap = (ahead - behind).abs(), (far_ahead - far_behind).abs()
        size = torch.maximum(ahead.abs(), behind.abs())
        near_zero = self._near_zero(settings)
        smooth = finite & (gap <= torch.maximum(near_zero, 0.5 * far_gap)) & (far_gap <= 1e-2 * size + near_zero)
        # Slopes that grow as the step shrinks are none: |x| has sign(0) = 0 between two equal jumps of its gradient.
        for near, far in ((ahead, far_ahead), (behind, far_behind)):
            smooth &= near.abs() <= 1.5 * far.abs() + near_zero
        known = torch.maximum(self.around.abs().amax(0), self.own.abs()).nan_to_num(0.0, 0.0)
        jump, infinite = torch.zeros_like(smooth), torch.zeros_like(smooth)
        for near, far in ((ahead, far_ahead), (behind, far_behind)):
            growth = (near.abs() / far.abs()).nan_to_num(0.0)
            growing = finite & ~smooth & (near.abs() > 3 * known + 1e2 * near_zero) & (growth > 1.5)
            # The step shrinks eightfold: where the change itself stays, the function jumps.
            jump |= growing & (growth > 0.75 * STEPS[0] / STEPS[1])
            infinite |= growing
        kink = finite & ~smooth & ~jump & ~infinite
        one_sided = torch.isfinite(ahead) ^ torch.isfinite(behind)
        undefined = ~torch.isfinite(self.own) & (kink | mixed(self.around, near_zero))
        edge = one_sided | (infinite & ~jump) | undefined
        # Where a direction leaves the domain of one row, gradients of the others may be undefined with it (0 * inf).
        if bool(edge.any()):
            edge |= ~torch.isfinite(self.own)
        return Sort(smooth=smooth & ~edge, kink=kink & ~edge, jump=jump, edge=edge)

    def outside(self, settings: CheckSettings) -> Tensor:
        """Rows whose analytical value is neither among the one-sided slopes nor among the values around."""
        ahead, behind = self.slopes[-1]
        sort = self.sort(settings)
        low = torch.minimum(torch.minimum(ahead, behind), self.around.amin(0))
        high = torch.maximum(torch.maximum(ahead, behind), self.around.amax(0))
        allowed = 4e-3 * torch.maximum(low.abs(), high.abs()) + self._near_zero(settings)
        inside = (self.own >= low - allowed) & (self.own <= high + allowed)
        return (sort.smooth | sort.kink) & ~inside

    def beyond_jump(self, settings: CheckSettings) -> Tensor:
        """Rows that jump on one side only, as one element moves, whose analytical value is neither the slope of the
        other side nor among the values around. Joint directions jump where any element does and tell nothing."""
        if not self.single:
            return torch.zeros_like(self.own, dtype=torch.bool)
        beyond = torch.zeros_like(self.own, dtype=torch.bool)
        (far_ahead, far_behind), (ahead, behind) = self.slopes
        for slope, far, other, far_other in (
            (ahead, far_ahead, behind, far_behind),
            (behind, far_behind, ahead, far_ahead),
        ):
            low, high = torch.minimum(slope, self.around.amin(0)), torch.maximum(slope, self.around.amax(0))
            size = torch.maximum(low.abs(), high.abs())
            allowed = (4e-3 + rtol(settings)) * size + atol(settings) * self.length + self.rounding
            steady = torch.isfinite(size) & ((slope - far).abs() <= allowed)
            jumps = other.abs() > 0.75 * STEPS[0] / STEPS[1] * far_other.abs() + 1e2 * allowed
            beyond |= steady & jumps & ~((self.own >= low - allowed) & (self.own <= high + allowed))
        return beyond & self.sort(settings).jump

    def _near_zero(self, settings: CheckSettings) -> Tensor:
        size = torch.maximum(self.slopes[-1][0].abs(), self.slopes[-1][1].abs())
        return 1e-6 * size + self.rounding + atol(settings) * self.length + rtol(settings) * size


def mixed(around: Tensor, near_zero: Tensor) -> Tensor:
    """Where gradients around differ by more than those of a smooth function do; `around` is (neighbours, ...)."""
    low, high = around.amin(0), around.amax(0)
    return ~(high - low <= 0.02 * torch.maximum(low.abs(), high.abs()) + near_zero)


def tolerance(settings: CheckSettings, size: Tensor) -> Tensor:
    """atol + rtol |size|."""
    return atol(settings) + rtol(settings) * size.abs()


def atol(settings: CheckSettings) -> float:
    """The absolute tolerance, torch's default where none is set."""
    return DEFAULT_ATOL if settings.atol is None else settings.atol


def rtol(settings: CheckSettings) -> float:
    """The relative tolerance, torch's default where none is set."""
    return DEFAULT_RTOL if settings.rtol is None else settings.rtol
