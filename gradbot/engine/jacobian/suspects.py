"""Collect what speaks against single entries while a Jacobian goes by in parts that are not kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gradbot.engine.comparison import Comparison, Verdict
from gradbot.engine.jacobian.confirm import Confirmed, confirm
from gradbot.engine.jacobian.point import Array, Point
from gradbot.engine.jacobian.tolerances import Tolerances

Indices: TypeAlias = NDArray[np.integer[Any]]

_KEPT_PER_PAIR = 24


@dataclass(slots=True, kw_only=True)
class Suspects:
    """Entries that differ or are not known well enough, the worst few of each (output, input) pair.

    This is a scratch pad: `add` fills it.
    """

    point: Point
    tolerances: Tolerances
    entries: dict[tuple[int, int], list[tuple[float, int, int]]] = field(default_factory=dict)
    allowed: tuple[float, int, int] | None = None  # the largest relative error that seems real and is allowed
    count: int = 0

    def add(self, rows: Indices, columns: Indices, analytical: Array, numerical: Array, noise: Array) -> None:
        """A part of the Jacobian. `rows` and `columns` say where its entries lie; all broadcast together."""
        with np.errstate(all="ignore"):
            error = np.abs(analytical - numerical)
            tolerance = self.tolerances.allowed(numerical)
            excess = error / tolerance
            alike = ((error <= tolerance) & (noise <= tolerance)) | (analytical == numerical)
            real = alike & (error > 1e-5 * np.abs(numerical)) & (error > 4 * noise)
        if alike.all() and not real.any():
            return
        rows, columns = np.broadcast_arrays(rows, columns, analytical)[:2]
        if real.any():
            relative = np.where(real, error / np.abs(numerical).clip(1e-300), 0.0)
            worst = int(relative.argmax())
            found = float(relative.flat[worst]), int(rows.flat[worst]), int(columns.flat[worst])
            self.allowed = found if self.allowed is None else max(self.allowed, found)
        self._keep(np.flatnonzero(~alike), rows, columns, np.nan_to_num(excess, nan=np.inf))

    def _keep(self, suspects: Indices, rows: Indices, columns: Indices, excess: Array) -> None:
        self.count += len(suspects)
        output_of = np.searchsorted(self.point.output_offsets, rows.flat[suspects], side="right") - 1
        input_of = np.searchsorted(self.point.input_offsets, columns.flat[suspects], side="right") - 1
        for output, each in {*zip(output_of.tolist(), input_of.tolist(), strict=True)}:
            mine = suspects[(output_of == output) & (input_of == each)]
            worst = mine[np.argsort(-excess.flat[mine])[:_KEPT_PER_PAIR]]
            kept = self.entries.setdefault((output, each), [])
            kept += [(float(excess.flat[k]), int(rows.flat[k]), int(columns.flat[k])) for k in worst]
            kept.sort(reverse=True)
            del kept[_KEPT_PER_PAIR:]

    def conclude(self, direction: str, method: str) -> Comparison:
        """The verdict, after each suspect has been looked at again."""
        wrong, unsure, largest, seen = set(), False, 0.0, 0
        for pair, kept in self.entries.items():
            confirmed = self._confirm(direction, [(row, column) for _, row, column in kept])
            seen += len(kept)
            unsure = unsure or confirmed.unsure
            largest = max(largest, confirmed.largest)
            if confirmed.wrong:
                wrong.add(pair)
        if self.allowed is not None:
            largest = max(largest, self._confirm(direction, [self.allowed[1:]]).largest)
        if wrong:
            verdict, reason = Verdict.DIFFER, ""
        elif unsure or seen < self.count:
            verdict, reason = Verdict.UNSURE, "precision"
        else:
            verdict, reason = Verdict.AGREE, ""
        return Comparison(
            verdict=verdict,
            method=method,
            wrong_pairs=tuple(sorted(wrong)),
            coverage=1.0,
            reason=reason,
            largest_relative_error=largest,
        )

    def _confirm(self, direction: str, entries: Sequence[tuple[int, int]]) -> Confirmed:
        return confirm(self.point, direction, entries, self.tolerances)
