"""What every source of inputs takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradbot.config import Config
from gradbot.errors import ExplainedError
from gradbot.model import Case, CheckSettings, ImportProblem, Note, Target

if TYPE_CHECKING:
    from gradbot.engine.references import References


class InputsError(ExplainedError):
    """The inputs of a case cannot be made; the message says why in one line."""


class StaleRecordingError(InputsError):
    """A recorded call that names what is gone; the message says what."""


def _silent(stage: str, what: str = "") -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What cases are wanted of: targets by id, as discovered; files that may declare cases, relative to `root` or not.

    `declared` as in `Discovery`: what to list as failing where such a file cannot be imported. `modules`: names
    of what was scanned. Where that was asked for on the command line, cases of targets elsewhere are left out.
    `on_stage` is told "inputs" and the reference of each generator before it runs; those in `skip` (they crashed or
    hung before) are not run: one case stands for all that they would give.
    """

    root: Path
    config: Config
    targets: Mapping[str, Target] = field(default_factory=dict)
    case_files: tuple[str, ...] = ()
    declared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    on_stage: Callable[[str, str], None] = _silent
    skip: Collection[str] = ()

    def wants(self, target: str) -> bool:
        """Whether cases of this target are wanted."""
        everything = "packages" not in self.config.flags
        asked = everything or target in self.targets or target.partition(":")[0] in self.modules
        return asked and self.config.selects_target(target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Cases; targets that they name and discovery did not list; files that could not be imported."""

    cases: tuple[Case, ...] = ()
    targets: tuple[Target, ...] = ()
    problems: tuple[ImportProblem, ...] = ()

    def joined(self, other: Collected) -> Collected:
        """This and another one. Of cases with the same id, the later ones get another name."""
        taken = {case.id for case in self.cases}
        cases = list(self.cases)
        for case in other.cases:
            case = renamed(case, taken)
            taken.add(case.id)
            cases.append(case)
        targets = {each.id: each for each in (*self.targets, *other.targets)}
        return Collected(
            cases=tuple(cases), targets=tuple(targets.values()), problems=(*self.problems, *other.problems)
        )


def case_id(target: str, name: str, device: str, dtype: str) -> str:
    """`target[name]device:dtype`."""
    return f"{target}[{name}]{device}:{dtype}"


def renamed(case: Case, taken: Collection[str]) -> Case:
    """The case under a name whose id is not taken: `name`, `name-2`, `name-3`, ..."""
    number = 2
    changed = case
    while changed.id in taken:
        name = f"{case.name}-{number}"
        changed = replace(case, name=name, id=case_id(case.target, name, case.device, case.dtype))
        number += 1
    return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCase:
    """What is called: `func(*args, **kwargs)`. `function_class` or `op` where the target is one.

    With `settings.skip` nothing is called: only the inputs themselves could tell that. `notes` are on the inputs.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    settings: CheckSettings
    function_class: type | None = None
    op: Any = None
    references: References
    notes: tuple[Note, ...] = ()
