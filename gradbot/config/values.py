"""The values that configuration is made of. Each option is documented once: in the metadata of its field."""

# ruff: noqa: RUF009  `_option` makes a dataclass field; it is called once a field, as `dataclasses.field` is

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from gradbot.model import CheckSettings, Mode
from gradbot.rules import RULES, find_rule

T = TypeVar("T")

DTYPES = ("float64", "float32", "float16", "bfloat16", "complex128", "complex64", "complex32")


class FailOn(str, Enum):
    """What makes `gradbot check` and `gradbot report` exit with 1."""

    FAILURES = "failures"
    NEW_FAILURES = "new-failures"
    ERRORS = "errors"
    NOTHING = "nothing"


class CommentMode(str, Enum):
    """When a pull request gets a comment."""

    ALWAYS = "always"
    CHANGES = "changes"
    FAILURES = "failures"
    OFF = "off"


class JunitFamily(str, Enum):
    """The dialect of JUnit XML."""

    XUNIT1 = "xunit1"
    XUNIT2 = "xunit2"


def _option(default: T, help_text: str, of: str = "") -> T:
    """A field with its documentation.

    `of` says what a value must be beside its type: a check, dtype, device, rule, size, expectation, or positive.
    """
    made: T = field(default=default, metadata={"help": help_text, "of": of})
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """One `[tool.gradbot.targets."<glob>"]` table: settings for the targets whose id the glob matches.

    None: not set here. The most specific pattern wins, the last one among equals.
    """

    pattern: str
    mode: Mode | None = _option(None, "How Jacobians are compared: auto, fast or exact.")
    eps: float | None = _option(None, "Step of the numerical derivative.", "positive")
    atol: float | None = _option(None, "Absolute tolerance.")
    rtol: float | None = _option(None, "Relative tolerance.")
    nondet_tol: float | None = _option(None, "How far repeats of the same derivative may lie apart.")
    masked: bool | None = _option(None, "Sparse inputs: only their specified entries are inputs.")
    checks: tuple[str, ...] | None = _option(None, "Checks to run; all that the target supports if empty.", "check")
    skip_checks: tuple[str, ...] | None = _option(None, "Checks to leave out.", "check")
    require: tuple[str, ...] | None = _option(None, "Checks whose absence is a failure.", "check")
    devices: tuple[str, ...] | None = _option(None, "Devices to check on.", "device")
    dtypes: tuple[str, ...] | None = _option(None, "Dtypes to check in.", "dtype")
    expect: str | None = _option(
        None, "An intentional gradient or known defect; needs a reason: {expectations}.", "expectation"
    )
    expect_kinds: tuple[str, ...] | None = _option(None, "Rules that `expect` covers; any if empty.", "rule")
    reason: str | None = _option(None, "Why: shown wherever `expect` shows.")
    skip: str | None = _option(None, "A reason to skip these targets altogether.")
    reference: str | None = _option(None, "A plain PyTorch function (`pkg.mod:name`) that has the same gradient.")
    surrogate_of: str | None = _option(None, "A function (`pkg.mod:name`) whose gradient the backward is meant to be.")
    projection: str | None = _option(None, "A function (`pkg.mod:name`) that moves inputs back into their set.")
    invariant: str | None = _option(None, "A function (`pkg.mod:name`) of the outputs that is well defined.")
    resample: bool | None = _option(None, "Allow declared inputs to be moved off a kink.")
    repeats: int | None = _option(None, "How often a derivative is repeated to see whether it differs.", "positive")
    determinism_seconds: float | None = _option(None, "Time that these repeats may take at most.")
    deterministic_algorithms: bool | None = _option(None, "Run under torch.use_deterministic_algorithms.")
    timeout: float | None = _option(None, "Seconds that one case may take.", "positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """What holds for one target: how it is checked, on which devices, in which dtypes (empty: as its inputs are)."""

    settings: CheckSettings
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every option of gradbot, merged: defaults, file, environment, flags.

    `root` is the folder that paths and globs are relative to, `source` the file that was read ("" for none), `flags`
    names what environment or command line set: these win over what is written for single targets.
    """

    root: str = "."
    source: str = ""
    flags: tuple[str, ...] = ()

    packages: tuple[str, ...] = _option((), "Packages, folders or files to discover targets in.")
    include: tuple[str, ...] = _option((), "Globs on target ids: only these targets are checked.")
    exclude: tuple[str, ...] = _option((), "Globs on target ids: these targets are not checked.")
    select: tuple[str, ...] = _option((), "Rules that count, by id, kind or prefix of an id; all if empty.", "rule")
    ignore: tuple[str, ...] = _option((), "Rules that do not count, by id, kind or prefix of an id.", "rule")
    cases: tuple[str, ...] = _option((), "Files or globs that declare cases, beside those in the packages.")
    recorded: str = _option("gradbot_cases", "Folder of recorded inputs.")
    devices: tuple[str, ...] = _option(("cpu",), "Devices to check on.", "device")
    dtypes: tuple[str, ...] = _option((), "Dtypes to check in; if empty, those of the inputs, else float64.", "dtype")
    mode: Mode = _option(Mode.AUTO, "How Jacobians are compared: auto, fast or exact.")
    seed: int = _option(0, "Seed that every case's own seed is made from.")
    eps: float | None = _option(None, "Step of the numerical derivative; chosen by dtype if not set.", "positive")
    atol: float | None = _option(None, "Absolute tolerance; chosen by dtype if not set.")
    rtol: float | None = _option(None, "Relative tolerance; chosen by dtype if not set.")
    nondet_tol: float = _option(0.0, "How far repeats of the same derivative may lie apart.")
    checks: tuple[str, ...] = _option((), "Checks to run; all that a target supports if empty.", "check")
    skip_checks: tuple[str, ...] = _option((), "Checks to leave out.", "check")
    require: tuple[str, ...] = _option((), "Checks whose absence is a failure.", "check")
    repeats: int = _option(8, "How often a derivative is repeated to see whether it differs.", "positive")
    determinism_seconds: float = _option(1.0, "Seconds that these repeats may take at most, per case.")
    deterministic_algorithms: bool = _option(False, "Run under torch.use_deterministic_algorithms.")
    timeout: float = _option(60.0, "Seconds that one case may take.", "positive")
    jobs: int = _option(0, "Worker processes; 0 or auto: one per core.")
    memory_limit: str = _option(
        "",
        'Memory that one worker may take, such as "4 GiB"; its share of the machine if empty, "0" for no limit.',
        "size",
    )
    retries: int = _option(2, "How often a failed case is run again, to tell flaky from wrong.")
    triton_interpret: bool = _option(True, "On the CPU, run Triton kernels in Triton's interpreter.")
    fail_on: FailOn = _option(FailOn.FAILURES, "What makes the exit code 1.")
    baseline: str = _option("", "File of known failures, which do not fail a run.")
    output_dir: str = _option(".gradbot", "Folder that reports are written to.")
    junit_family: JunitFamily = _option(JunitFamily.XUNIT1, "Dialect of the JUnit XML file.")
    comment_id: str = _option("gradbot", "Names the pull-request comment; one comment per name.")
    comment_mode: CommentMode = _option(CommentMode.ALWAYS, "When a pull request gets a comment.")
    targets: tuple[TargetTable, ...] = _option((), 'Settings per target: [tool.gradbot.targets."<glob>"] tables.')

    def selects_target(self, target_id: str) -> bool:
        """Whether `include` and `exclude` leave this target in."""
        included = not self.include or matches_any(target_id, self.include)
        return included and not matches_any(target_id, self.exclude)

    def selects_rule(self, kind: str) -> bool:
        """Whether findings of this rule (id or kind) count. The longer prefix wins; `ignore` among equals."""
        rule = find_rule(kind)
        identity = rule.id if rule else kind
        selected = max((_reach(each, identity) for each in self.select), default=1)
        ignored = max((_reach(each, identity) for each in self.ignore), default=0)
        return selected > ignored

    def settings_for(self, target_id: str, nearer: Iterable[TargetTable] = ()) -> TargetOptions:
        """What holds for one target: per-target tables over general options, flags and environment over both.

        `nearer` are tables of what is declared beside the code; they win over those of the file, the last one most.
        """
        general = {each.name for each in dataclasses.fields(Config)}
        values: dict[str, Any] = {name: getattr(self, name) for name in _PER_TARGET if name in general}
        for table in (*sorted_by_specificity(self.targets, target_id), *nearer):
            given = {name: value for name in _PER_TARGET if (value := getattr(table, name)) is not None}
            values.update({name: value for name, value in given.items() if name not in self.flags})
        devices, dtypes, timeout = values.pop("devices"), values.pop("dtypes"), values.pop("timeout")
        return TargetOptions(settings=CheckSettings(**values), devices=devices, dtypes=dtypes, timeout=timeout)

    def unused_patterns(self, target_ids: Iterable[str]) -> tuple[str, ...]:
        """Patterns of include, exclude and targets that match none of these targets: most often a typing error."""
        known = tuple(target_ids)
        patterns = (*self.include, *self.exclude, *(table.pattern for table in self.targets))
        return tuple(each for each in patterns if not any(fnmatchcase(target, each) for target in known))

    @property
    def memory_limit_bytes(self) -> int | None:
        """`memory_limit` in bytes; None for a share of the machine, 0 for no limit."""
        return parse_size(self.memory_limit)


_PER_TARGET = tuple(each.name for each in dataclasses.fields(TargetTable) if each.name != "pattern")


def matches_any(target_id: str, patterns: Iterable[str]) -> bool:
    """Whether one of the globs matches; upper and lower case differ."""
    return any(fnmatchcase(target_id, pattern) for pattern in patterns)


def sorted_by_specificity(tables: Iterable[TargetTable], target_id: str) -> list[TargetTable]:
    """The tables that match, so that the one that wins comes last: more literal characters, then later in the file."""
    matching = [each for each in tables if fnmatchcase(target_id, each.pattern)]
    return sorted(matching, key=lambda each: (each.pattern == target_id, len(re.sub(r"[*?]", "", each.pattern))))


def names_a_rule(name: str) -> bool:
    """Whether this is the id or kind of a rule, or the beginning of an id ("GB1", "GB")."""
    if find_rule(name) is not None:
        return True
    prefix = name.upper()
    return len(prefix) >= len("GB") and any(rule.id.startswith(prefix) for rule in RULES.values())


def _reach(name: str, rule_id: str) -> int:
    """How closely a name of `select` or `ignore` names this rule: 0 not at all, else the characters of the id."""
    rule = find_rule(name)
    if rule is not None:
        return len(rule.id) if rule.id == rule_id else 0
    return len(name) if rule_id.startswith(name.upper()) else 0


_UNITS = {"": 1, "b": 1, "k": 10, "ki": 10, "m": 20, "mi": 20, "g": 30, "gi": 30, "t": 40, "ti": 40}


def parse_size(text: str) -> int | None:
    """Bytes of "4 GiB", "512M" or "1073741824"; units count in 1024s. None for "". Raises ValueError."""
    if not text.strip():
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"not a size: {text!r}")
    amount, exponent = float(match[1]), _UNITS[match[2]]
    return int(amount * (1 if exponent <= 1 else 1 << exponent))
