"""The words of gradbot as frozen values: what is checked, with what, what was found, and how it is shown.

Everything here is plain data: no tensor, no file, no process. A value made in a worker travels unchanged through
`report.json` to every writer. Field types are limited to what `codec` can write: str, int, float, complex, bool,
enums, tuples, string-keyed mappings, `None` and other values of this module.

What follows from other fields is not stored; it is computed where it is needed (`report.aggregate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

SCHEMA_VERSION = 1

Scalar = str | int | float | bool | None
Number = float | complex
"""An entry of a Jacobian. Complex functions are treated as real ones of twice the size where it is split."""


class TargetKind(str, Enum):
    """What kind of thing a target is."""

    FUNCTION = "function"  # a torch.autograd.Function subclass, `pkg.mod:Outer.Name`
    OP = "op"  # an op registered with torch.library, `ns::name.overload`
    CALLABLE = "callable"  # a function or nn.Module that a user declares


class CheckName(str, Enum):
    """One property of a target; one file in `engine/checks/` each."""

    BACKWARD = "backward"
    FORWARD_AD = "forward_ad"
    DOUBLE_BACKWARD = "double_backward"
    FORWARD_OVER_BACKWARD = "forward_over_backward"
    BATCHED_GRAD = "batched_grad"
    BATCHED_FORWARD_GRAD = "batched_forward_grad"
    UNDEFINED_GRAD = "undefined_grad"
    GRAD_OUTPUTS = "grad_outputs"
    GRAD_METADATA = "grad_metadata"
    NEEDS_INPUT_GRAD = "needs_input_grad"
    DETERMINISM = "determinism"
    SIDE_EFFECTS = "side_effects"
    REGISTRATION = "registration"
    REFERENCE = "reference"
    COMPILED = "compiled"  # off unless asked for


class Outcome(str, Enum):
    """How a check, or a case, ended."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"  # kink, precision or domain: see the reason code
    UNSUPPORTED = "unsupported"  # the target does not offer this derivative
    EXPECTED_FAILURE = "expected_failure"
    UNEXPECTED_PASS = "unexpected_pass"
    SKIPPED = "skipped"  # always with a reason
    ERRORED = "errored"  # user code raised
    CRASHED = "crashed"  # the process died
    TIMED_OUT = "timed_out"


class Capability(str, Enum):
    """What a target offers, per check."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    WRONG = "wrong"


class Severity(str, Enum):
    """How a finding counts: errors fail a run, warnings and notes are shown."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Certainty(str, Enum):
    """How sure a finding is."""

    CERTAIN = "certain"  # confirmed entry by entry, at two steps or in exact arithmetic
    LIKELY = "likely"  # one method says so and nothing speaks against it


class InputSource(str, Enum):
    """Where a case's inputs come from."""

    DECLARED = "declared"
    RECORDED = "recorded"
    OPINFO = "opinfo"
    GRADCHECK_CALL = "gradcheck_call"  # a gradcheck call in a test suite
    SYNTHESIZED = "synthesized"


class Mode(str, Enum):
    """How Jacobians are compared; see the engine."""

    AUTO = "auto"
    FAST = "fast"
    EXACT = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in source code. `path` is POSIX and relative to the repository root where it lies in it."""

    path: str
    line: int  # counted from 1
    end_line: int | None = None
    symbol: str = ""  # the method or class that stands there


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What a target offers, read from its class or registration. `None`: not known."""

    backward: bool | None = None
    jvp: bool | None = None
    setup_context: bool | None = None
    vmap: str | None = None  # "rule", "generated", "none"
    once_differentiable: bool | None = None
    autograd_formula: bool | None = None  # ops: register_autograd or an Autograd kernel
    fake_kernel: bool | None = None  # ops


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is checked.

    `id` is `pkg.mod:Outer.Name` for functions and callables, `ns::name.overload` for ops (the overload is left out
    where it is `default`). `methods` maps forward, backward, jvp, vmap, setup_context (or, for ops, define, impl,
    autograd, fake, vmap) to their places; `seen` says which step found it: "static", "runtime" or "both".
    """

    id: str
    kind: TargetKind
    package: str = ""
    module: str = ""
    qualname: str = ""
    location: Location | None = None
    methods: Mapping[str, Location] = field(default_factory=dict)
    offers: Offers = field(default_factory=Offers)
    aliases: tuple[str, ...] = ()
    schema: str = ""
    triton: bool = False
    seen: str = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportProblem:
    """A module that could not be imported, with the reason in one line. `crash` is set where it killed its importer."""

    module: str
    path: str
    reason: str
    crash: Crash | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceModule:
    """A module to import: name, file, the folder that must be on `sys.path`, and whether targets are made there."""

    name: str
    path: str
    import_root: str
    makes_targets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What was discovered.

    `case_files` are files that declare cases, `modules` the modules to import, packages before what is in them;
    `declared` maps ids of targets to the places (`path:line`) where cases are declared for them, `case_ids` to their
    cases once these are known. `third_party`: what other packages registered is wanted too.
    """

    targets: tuple[Target, ...] = ()
    problems: tuple[ImportProblem, ...] = ()
    case_files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    modules: tuple[SourceModule, ...] = ()
    declared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    case_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    third_party: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """How one case is checked: defaults, configuration, target, sample and flags already merged, nearest wins.

    `checks` empty means every check that the target supports. `require` names checks whose absence is a failure.
    `expect` is "" or one of EXPECTATIONS, always with a `reason`. `reference`, `surrogate_of`, `projection` and
    `invariant` name callables (`pkg.mod:name`) where they are configured as text; a sample may hold them as objects.
    """

    mode: Mode = Mode.AUTO
    eps: float | None = None  # None: chosen by dtype
    atol: float | None = None
    rtol: float | None = None
    nondet_tol: float = 0.0
    masked: bool = False
    checks: tuple[str, ...] = ()
    skip_checks: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    expect: str = ""
    expect_kinds: tuple[str, ...] = ()  # rule ids or kinds that are expected; empty: any
    reason: str = ""
    skip: str = ""  # a reason to skip the whole case
    repeats: int = 8
    determinism_seconds: float = 1.0
    memory_bytes: int = 1 << 30
    resample: bool = False
    deterministic_algorithms: bool = False
    reference: str = ""
    surrogate_of: str = ""
    projection: str = ""
    invariant: str = ""


EXPECTATIONS = ("surrogate", "straight_through", "reversal", "scaled", "stochastic", "failure")
"""Values of `expect`. The first four declare an intentional gradient, `failure` a known defect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A target with one sample, a device, a dtype and a seed. Names its inputs by reference; holds no tensor.

    `reference` says how a worker gets the sample again: `<source>:<where>#<index>`, for example
    `declared:tests/cases_softcap.py:softcap#2`. `id` is unique in a report and stable across runs:
    `target[name]device:dtype`.
    """

    id: str
    target: str
    name: str
    source: InputSource
    reference: str
    device: str = "cpu"
    dtype: str = "float64"
    seed: int = 0
    settings: CheckSettings = field(default_factory=CheckSettings)
    test_id: str = ""  # the pytest node id, for gradcheck calls and recorded samples


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSummary:
    """One tensor of a sample, without its values."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str = "strided"
    device: str = "cpu"
    requires_grad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A recognised pattern in an error.

    `pattern` is a key of `messages.PATTERNS`; `parameters` fill its sentence. `residual` is the part of the error that
    the pattern leaves unexplained, relative to the error (0: explains all); `threshold` the bound it was held to.
    """

    pattern: str
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    residual: float = 0.0
    threshold: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a Jacobian. Indices are positions in the output's and the input's shape."""

    output_index: tuple[int, ...]
    input_index: tuple[int, ...]
    analytical: Number
    numerical: Number
    error: float  # |analytical - numerical|
    tolerance: float  # what was allowed
    error_bar: float = 0.0  # of the numerical value


@dataclass(frozen=True, slots=True, kw_only=True)
class JacobianMap:
    """A down-sampled picture of a Jacobian, at most 64 x 64: inputs down, outputs across.

    `values` holds, per block, the signed entry of largest magnitude. `rows` and `columns` are the true sizes.
    `what` is "analytical", "numerical" or "error".
    """

    what: str
    rows: int
    columns: int
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Largest error along one side of the Jacobian ("input" or "output"), down-sampled to at most 256 values."""

    side: str
    size: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of an input or output that is wrong: these `indices` of dimension `dim`. `side` as in `Profile`."""

    side: str
    dim: int
    indices: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimate:
    """The numerical derivative of one entry or direction at one step size."""

    step: float
    numerical: float
    error_bar: float
    analytical: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Repeated evaluations of one thing: how many differ from the first, by how much, how surely that often.

    `stage` is "forward", "backward", "second_backward" or "state" (carried on the graph). `rate_low` and `rate_high`
    bound the rate of differing repeats (Clopper-Pearson, 95%). `sizes` are the differences, one a repeat.
    """

    stage: str
    repeats: int
    differing: int
    largest: float
    relative: float = 0.0
    sizes: tuple[float, ...] = ()
    rate_low: float = 0.0
    rate_high: float = 1.0
    fixed_seed: bool = True
    documented_op: str = ""  # a torch op that is documented as nondeterministic


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a finding or a passed check can show, bounded in size."""

    method: str = ""  # "dense", "dense vmap", "probe", "structured", "localised", ...
    input_shape: tuple[int, ...] = ()
    output_shape: tuple[int, ...] = ()
    entries: tuple[Entry, ...] = ()
    maps: tuple[JacobianMap, ...] = ()
    profiles: tuple[Profile, ...] = ()
    slices: tuple[Slice, ...] = ()
    steps: tuple[StepEstimate, ...] = ()
    spreads: tuple[Spread, ...] = ()
    wrong_entries: int | None = None  # how many entries are wrong, where that was counted
    checked_entries: int | None = None  # of how many
    complete: bool | None = None  # certified that nothing else is wrong
    resolution: float | None = None  # smallest relative error that would have been seen
    coverage: float | None = None  # share of output rows that were compared at that resolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing wrong at one place, as numbers and coordinates; `messages` puts it in words.

    `kind` is a key of `rules.RULES`, `rule` its stable id. `output` counts differentiable outputs, `input` checked
    inputs, both from 0. `details` are the numbers and names that the rule's sentence needs.
    """

    rule: str
    kind: str
    check: str
    severity: Severity
    certainty: Certainty = Certainty.CERTAIN
    output: int | None = None
    input: int | None = None
    output_name: str = ""
    input_name: str = ""
    location: Location | None = None
    diagnosis: Diagnosis | None = None
    evidence: Evidence | None = None
    details: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something worth saying that is not wrong: a `code` of `messages.NOTES` and what fills its sentence."""

    code: str
    details: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """How one check of one case ended. `reason` is a code of `messages.REASONS` unless passed or failed."""

    check: str
    outcome: Outcome
    capability: Capability | None = None
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    details: Mapping[str, Scalar] = field(default_factory=dict)
    evidence: Evidence | None = None  # of a pass: method, resolution, coverage
    notes: tuple[Note, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """How a worker died or was stopped. `cause`: "signal", "exit", "timeout", "memory", "protocol", "exception"."""

    cause: str
    signal: str = ""  # "SIGSEGV"
    exit_code: int | None = None
    limit: str = ""  # "60 s", "4.0 GiB"
    stage: str = ""  # "import", "inputs", "forward", "backward", a check's name, "exit"
    message: str = ""  # one line
    output_tail: str = ""  # last lines that user code printed, capped


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """How often a case was run and how often it failed: "n of m"."""

    runs: int
    failures: int
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """How one case ended. `outcome` is the worst of its checks' unless the case itself ended otherwise.

    `reason` and `details` as in `CheckResult`, for a case that was skipped, errored or killed as a whole.
    """

    case: Case
    outcome: Outcome
    checks: tuple[CheckResult, ...] = ()
    inputs: tuple[TensorSummary, ...] = ()
    outputs: tuple[TensorSummary, ...] = ()
    notes: tuple[Note, ...] = ()
    reason: str = ""
    details: Mapping[str, Scalar] = field(default_factory=dict)
    crash: Crash | None = None
    attempts: Attempts | None = None
    location: Location | None = None
    seconds: float = 0.0
    worker: str = ""  # which environment of the report it ran in: Environment.name
    run_attempt: int = 1  # which attempt of the run it is from: Run.attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """A discovered target that no case was run for, and the code of `messages.REASONS` that says why."""

    target: str
    reason: str
    details: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where cases ran. `flags` holds TF32, cuDNN, deterministic options, TRITON_INTERPRET and the like, as text."""

    name: str  # "cpu", "cuda:0"
    device: str
    device_name: str = ""
    driver: str = ""
    python: str = ""
    platform: str = ""
    torch: str = ""
    cuda: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Which part of the plan this report covers. `expected` names every shard of the run."""

    name: str = "1/1"
    expected: tuple[str, ...] = ("1/1",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRun:
    """One shard's newest run in a merged report."""

    name: str
    attempt: int = 1
    started: str = ""
    seconds: float = 0.0
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where and when a report was made. Shas are empty outside git; `ci_run` outside CI."""

    tool_version: str = ""
    started: str = ""  # ISO 8601, UTC
    seconds: float = 0.0
    command: tuple[str, ...] = ()
    seed: int = 0
    repository: str = ""
    head_sha: str = ""  # the pull request's head, from the event
    checked_out_sha: str = ""  # from git; often the merge commit
    base_sha: str = ""
    branch: str = ""
    ci_run: str = ""
    attempt: int = 1
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything one run found out. The one thing that every writer reads."""

    run: Run = field(default_factory=Run)
    shard: Shard = field(default_factory=Shard)
    shards_seen: tuple[str, ...] = ("1/1",)
    environments: tuple[Environment, ...] = ()
    targets: tuple[Target, ...] = ()
    problems: tuple[ImportProblem, ...] = ()
    results: tuple[CaseResult, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    findings: tuple[Finding, ...] = ()  # across cases: a difference between devices
    notes: tuple[Note, ...] = ()
    shard_runs: tuple[ShardRun, ...] = ()  # of a merged report: the newest run of each shard
    schema_version: int = SCHEMA_VERSION
