"""One run that has every outcome, and the run on its base branch, as model values: documentation and golden files."""

from __future__ import annotations

import math
from dataclasses import replace

from gradbot.model import (
    Attempts,
    Capability,
    Case,
    CaseResult,
    Certainty,
    CheckResult,
    CheckSettings,
    Crash,
    Diagnosis,
    Entry,
    Environment,
    Evidence,
    Finding,
    ImportProblem,
    InputSource,
    JacobianMap,
    Location,
    Note,
    Offers,
    Outcome,
    Profile,
    Report,
    Run,
    Shard,
    Slice,
    Spread,
    StepEstimate,
    Target,
    TargetKind,
    TensorSummary,
    Unchecked,
)
from gradbot.rules import RULES

HEAD_SHA = "4f1c9e7d2b8a6035c1e9f7a2d4b6c8e0a1f3b5d7"
BASE_SHA = "a03be1197c5d3f1b8e6a4c2d0f9e7b5a3c1d8f60"
PASSED, FAILED = Outcome.PASSED, Outcome.FAILED
_SOFTCAP = """
class SoftCap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cap):
        y = cap * torch.tanh(x / cap)
        ctx.save_for_backward(y)
        ctx.cap = cap
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        # tanh' is 1 - tanh^2; both halves of the kernel add theirs
        slope = 1 - (y / ctx.cap) ** 2
        half = 0.5 * grad_output * slope
        return half, None
"""
SOURCES = {"kernels/softcap.py": "import torch\n" + "\n" * 28 + _SOFTCAP}
"""Sources that the page quotes."""


def head() -> Report:
    """The run on the pull request's head."""
    return Report(
        run=Run(
            tool_version="0.1.0",
            started="2026-03-02T09:14:05Z",
            seconds=108.4,
            command=("gradbot", "check", "kernels", "mylib"),
            seed=7,
            repository="acme/kernels",
            head_sha=HEAD_SHA,
            checked_out_sha=HEAD_SHA,
            base_sha=BASE_SHA,
            branch="faster-softcap",
            ci_run="812",
        ),
        shard=Shard(name="merged", expected=("cpu", "cuda-1", "cuda-2")),
        shards_seen=("cpu", "cuda-1"),
        environments=_environments(),
        targets=_targets(),
        problems=(
            ImportProblem(
                module="kernels.tpu",
                path="kernels/tpu.py",
                reason="ModuleNotFoundError: No module named 'torch_xla'",
            ),
        ),
        results=(
            _softcap("cpu", "float64"),
            _softcap("cuda:0", "float64"),
            _ragged_sum(),
            _scatter_mix(),
            _lens_warp(),
            _hard_gate(),
            _swish_half(),
            _rope(double=PASSED),
            _norm(),
            _round_ste(),
            _trunc_pass(),
            _flash_attention(),
            _block_sparse(),
            _loader(),
            _all_reduce(),
            _histogram(),
            _small_scale(),
        ),
        unchecked=(
            Unchecked(target="kernels.moe:TopKGate", reason="no_inputs"),
            Unchecked(target="kernels.moe:Combine", reason="no_inputs"),
        ),
        findings=(
            Finding(
                rule="GB109",
                kind="device_difference",
                check="backward",
                severity=RULES["device_difference"].severity,
                details={
                    "target": "kernels.norm:RmsNorm",
                    "case": "rms-8x64",
                    "first": "cpu",
                    "second": "cuda:0",
                    "largest": 2.4e-3,
                },
            ),
        ),
    )


def base() -> Report:
    """The run on the base branch: SoftCap right, Rope's double backward wrong, the rest as on the head."""
    run = replace(head().run, head_sha=BASE_SHA, checked_out_sha=BASE_SHA, branch="main", ci_run="806", seconds=95.2)
    results = (
        _softcap("cpu", "float64", right=True),
        _softcap("cuda:0", "float64", right=True),
        _scatter_mix(),
        _lens_warp(),
        _hard_gate(),
        _swish_half(),
        _rope(double=FAILED),
        _norm(),
        _round_ste(),
        _gather("kernels.gather:OldGather"),
        _loader(right=True),
        _histogram(right=True),
        _small_scale(),
    )
    targets = (*_targets(), _function("kernels.gather:OldGather", 9))
    named = {result.case.target for result in results}
    return replace(
        head(),
        run=run,
        results=results,
        targets=tuple(target for target in targets if target.id in named),
        unchecked=(),
        findings=(),
        problems=(),
        shard=Shard(name="merged", expected=("cpu", "cuda-1")),
        shards_seen=("cpu", "cuda-1"),
    )


def _environments() -> tuple[Environment, ...]:
    common = {"python": "3.11.9", "platform": "Linux-6.5-x86_64", "torch": "2.13.0"}
    return (
        Environment(name="cpu", device="cpu", device_name="AMD EPYC 7763", **common),
        Environment(
            name="cuda:0",
            device="cuda:0",
            device_name="NVIDIA H100 80GB HBM3",
            driver="570.86",
            cuda="12.8",
            flags={"allow_tf32": "False", "cudnn.deterministic": "False"},
            **common,
        ),
    )


def _function(name: str, line: int, *, jvp: bool = False, vmap: str = "none") -> Target:
    module, _, qualname = name.partition(":")
    path = module.replace(".", "/") + ".py"
    methods = {
        "forward": Location(path=path, line=line + 3, symbol=f"{qualname}.forward"),
        "backward": Location(path=path, line=line + 9, end_line=line + 14, symbol=f"{qualname}.backward"),
    }
    if jvp:
        methods["jvp"] = Location(path=path, line=line + 19, symbol=f"{qualname}.jvp")
    if vmap == "rule":
        methods["vmap"] = Location(path=path, line=line + 25, symbol=f"{qualname}.vmap")
    return Target(
        id=name,
        kind=TargetKind.FUNCTION,
        package=module.partition(".")[0],
        module=module,
        qualname=qualname,
        location=Location(path=path, line=line, symbol=qualname),
        methods=methods,
        offers=Offers(backward=True, jvp=jvp, vmap=vmap, once_differentiable=False),
        seen="both",
    )


def _targets() -> tuple[Target, ...]:
    return (
        _function("kernels.softcap:SoftCap", 31),
        Target(
            id="mylib::ragged_sum",
            kind=TargetKind.OP,
            package="mylib",
            module="mylib.ops",
            qualname="ragged_sum",
            location=Location(path="csrc/ragged.cpp", line=61),
            methods={"autograd": Location(path="csrc/ragged.cpp", line=88, symbol="ragged_sum_backward")},
            offers=Offers(autograd_formula=True, fake_kernel=True),
            schema="ragged_sum(Tensor values, Tensor offsets) -> Tensor",
            seen="runtime",
        ),
        _function("kernels.mix:ScatterMix", 6),
        _function("kernels.lens:LensWarp", 14, vmap="rule"),
        _function("kernels.act:HardGate", 8),
        _function("kernels.act:SwishHalf", 42),
        _function("kernels.rope:Rope", 20, jvp=True, vmap="generated"),
        _function("kernels.norm:RmsNorm", 11),
        _function("kernels.quant:RoundSte", 5),
        _function("kernels.quant:TruncPass", 33),
        _function("kernels.attn:FlashAttention", 70),
        _function("kernels.sparse:BlockSparse", 18),
        _function("kernels.io:Loader", 4),
        _function("kernels.dist:AllReduce", 7),
        _function("kernels.hist:Histogram", 12),
        _function("kernels.act:SmallScale", 80),
        _function("kernels.moe:TopKGate", 12),
        _function("kernels.moe:Combine", 51),
    )


def _case(target: str, name: str, device: str = "cpu", dtype: str = "float64", **more: object) -> Case:
    stem = target.partition(":")[0].rpartition(".")[2] or "ops"
    fields = {
        "source": InputSource.DECLARED,
        "reference": f"declared:tests/cases_{stem}.py:{stem}#0",
        "seed": 7,
        **more,
    }
    return Case(id=f"{target}[{name}]{device}:{dtype}", target=target, name=name, device=device, dtype=dtype, **fields)


def _tensor(name: str, *shape: int, device: str = "cpu", dtype: str = "float64", grad: bool = True) -> TensorSummary:
    return TensorSummary(name=name, shape=shape, dtype=dtype, device=device, requires_grad=grad)


def _passed(check: str, seconds: float = 0.03, resolution: float | None = 1e-5) -> CheckResult:
    evidence = Evidence(method="probe", resolution=resolution, coverage=1.0) if resolution else None
    return CheckResult(check=check, outcome=PASSED, capability=Capability.SUPPORTED, evidence=evidence, seconds=seconds)


def _unsupported(check: str, reason: str = "not_supported") -> CheckResult:
    return CheckResult(check=check, outcome=Outcome.UNSUPPORTED, capability=Capability.UNSUPPORTED, reason=reason)


def _failed(check: str, finding: Finding, seconds: float = 0.2) -> CheckResult:
    return CheckResult(check=check, outcome=FAILED, capability=Capability.WRONG, findings=(finding,), seconds=seconds)


def _finding(kind: str, check: str, **more: object) -> Finding:
    rule = RULES[kind]
    return Finding(rule=rule.id, kind=kind, check=check, severity=rule.severity, **more)


def _slope(i: int) -> float:
    return 1 - math.tanh((i * 37 % 64) / 24 - 1.3) ** 2


def _diagonal(scale: float, what: str, rows: int = 8192) -> JacobianMap:
    values = tuple(tuple(scale * _slope(i) if i == j else 0.0 for j in range(64)) for i in range(64))
    return JacobianMap(what=what, rows=rows, columns=rows, values=values)


def _softcap(device: str, dtype: str, right: bool = False) -> CaseResult:
    target = "kernels.softcap:SoftCap"
    error = Evidence(
        method="localised",
        input_shape=(64, 128),
        output_shape=(64, 128),
        entries=tuple(
            Entry(
                output_index=place,
                input_index=place,
                analytical=0.5 * value,
                numerical=value,
                error=0.5 * value,
                tolerance=1e-3 * value + 1e-5,
                error_bar=1e-9,
            )
            for place, value in (((3, 127), 0.8408), ((0, 5), 0.7922), ((17, 64), 0.7014), ((40, 2), 0.6120))
        ),
        maps=(_diagonal(0.5, "analytical"), _diagonal(1.0, "numerical"), _diagonal(-0.5, "error")),
        profiles=(
            Profile(side="input", size=8192, values=tuple(0.5 * _slope(i // 4) for i in range(256))),
            Profile(side="output", size=8192, values=tuple(0.5 * _slope(i // 4) for i in range(256))),
        ),
        wrong_entries=8192,
        checked_entries=8192 * 8192,
        complete=True,
    )
    half = Diagnosis(pattern="constant_factor", parameters={"factor": 0.5}, residual=3e-10, threshold=1e-6)
    backward = _finding(
        "jacobian_mismatch_backward",
        "backward",
        output=0,
        input=0,
        output_name="",
        input_name="x",
        location=Location(path="kernels/softcap.py", line=40, end_line=45, symbol="SoftCap.backward"),
        diagnosis=half,
        evidence=error,
    )
    double = _finding(
        "jacobian_mismatch_double_backward",
        "double_backward",
        output=0,
        input=0,
        input_name="x",
        location=Location(path="kernels/softcap.py", line=40, end_line=45, symbol="SoftCap.backward"),
        diagnosis=half,
    )
    wrong = (_failed("backward", backward), _failed("double_backward", double, 0.4))
    fine = (_passed("backward", 0.2), _passed("double_backward", 0.4))
    return CaseResult(
        case=_case(target, "softcap-64x128", device, dtype),
        outcome=PASSED if right else FAILED,
        checks=(
            *(fine if right else wrong),
            _unsupported("forward_ad"),
            _passed("batched_grad"),
            _passed("undefined_grad", resolution=None),
            _passed("determinism", resolution=None),
        ),
        inputs=(_tensor("x", 64, 128, device=device),),
        outputs=(_tensor("out", 64, 128, device=device),),
        seconds=0.9,
        worker=device,
    )


def _ragged_sum() -> CaseResult:
    target = "mylib::ragged_sum"
    values = tuple(tuple(0.9 if j >= 32 and i == (j * 7) % 64 else 0.0 for j in range(64)) for i in range(64))
    evidence = Evidence(
        method="dense",
        input_shape=(16, 128),
        output_shape=(16, 128),
        entries=(
            Entry(output_index=(0, 64), input_index=(0, 64), analytical=0.0, numerical=1.0, error=1.0, tolerance=1e-3),
            Entry(output_index=(0, 65), input_index=(0, 65), analytical=0.0, numerical=1.0, error=1.0, tolerance=1e-3),
            Entry(output_index=(0, 65), input_index=(0, 64), analytical=1.0, numerical=0.0, error=1.0, tolerance=1e-5),
        ),
        maps=(JacobianMap(what="error", rows=2048, columns=2048, values=values),),
        slices=(Slice(side="output", dim=1, indices=tuple(range(64, 128)), size=128),),
        wrong_entries=2048,
        checked_entries=2048 * 2048,
        complete=True,
    )
    finding = _finding(
        "grad_output_layout",
        "grad_outputs",
        output=0,
        input=0,
        input_name="values",
        location=Location(path="csrc/ragged.cpp", line=88, symbol="ragged_sum_backward"),
        diagnosis=Diagnosis(pattern="grad_output_strides", residual=0.0, threshold=1e-6),
        evidence=evidence,
        details={"layout": "transposed"},
    )
    return CaseResult(
        case=_case(
            target, "batch-16x128", "cuda:0", source=InputSource.RECORDED, test_id="tests/test_ragged.py::test_sum"
        ),
        outcome=FAILED,
        checks=(
            _passed("backward"),
            _passed("double_backward"),
            _unsupported("forward_ad"),
            _failed("grad_outputs", finding),
            _passed("determinism", resolution=None),
            _passed("registration", resolution=None),
        ),
        inputs=(
            _tensor("values", 16, 128, device="cuda:0"),
            _tensor("offsets", 17, device="cuda:0", dtype="int64", grad=False),
        ),
        outputs=(_tensor("out", 16, 128, device="cuda:0"),),
        seconds=1.4,
        worker="cuda:0",
    )


def _scatter_mix() -> CaseResult:
    spread = Spread(
        stage="backward",
        repeats=8,
        differing=6,
        largest=3e-7,
        relative=2e-7,
        sizes=(0.0, 1.2e-7, 3e-7, 0.0, 2.4e-7, 6e-8, 1.8e-7, 1.2e-7),
        rate_low=0.35,
        rate_high=0.97,
        documented_op="index_add_",
    )
    finding = _finding(
        "nondeterministic",
        "determinism",
        input=0,
        input_name="x",
        location=Location(path="kernels/mix.py", line=17, symbol="ScatterMix.backward"),
        evidence=Evidence(spreads=(spread,)),
    )
    return CaseResult(
        case=_case("kernels.mix:ScatterMix", "mix-1024", "cuda:0", "float32", source=InputSource.RECORDED),
        outcome=FAILED,
        checks=(_passed("backward", resolution=1e-3), _failed("determinism", finding), _unsupported("forward_ad")),
        inputs=(_tensor("x", 1024, device="cuda:0", dtype="float32"),),
        outputs=(_tensor("out", 64, device="cuda:0", dtype="float32"),),
        seconds=1.1,
        worker="cuda:0",
    )


def _lens_warp() -> CaseResult:
    finding = _finding(
        "batched_grad",
        "batched_grad",
        input=1,
        input_name="grid",
        location=Location(path="kernels/lens.py", line=39, symbol="LensWarp.vmap"),
        diagnosis=Diagnosis(pattern="swapped_rows", parameters={"side": "input", "first": 0, "second": 1}),
        evidence=Evidence(
            entries=(
                Entry(
                    output_index=(0, 0), input_index=(0, 1), analytical=0.25, numerical=-0.75, error=1.0, tolerance=1e-5
                ),
            ),
        ),
    )
    return CaseResult(
        case=_case("kernels.lens:LensWarp", "warp-8x8"),
        outcome=FAILED,
        checks=(_passed("backward"), _passed("double_backward"), _failed("batched_grad", finding)),
        inputs=(_tensor("image", 8, 8), _tensor("grid", 8, 8, 2)),
        outputs=(_tensor("out", 8, 8),),
        seconds=0.3,
        worker="cpu",
    )


def _hard_gate() -> CaseResult:
    check = CheckResult(
        check="backward",
        outcome=Outcome.INCONCLUSIVE,
        reason="kink",
        evidence=Evidence(
            method="dense",
            steps=tuple(
                StepEstimate(
                    step=10.0**-k, numerical=0.5 + 2.0 ** (-k) * 1e-3, error_bar=10.0 ** (k - 9), analytical=0.0
                )
                for k in range(2, 7)
            ),
        ),
        seconds=0.05,
    )
    return CaseResult(
        case=_case("kernels.act:HardGate", "gate-zeros"),
        outcome=Outcome.INCONCLUSIVE,
        checks=(check, _passed("undefined_grad", resolution=None)),
        inputs=(_tensor("x", 16),),
        outputs=(_tensor("out", 16),),
        seconds=0.1,
        worker="cpu",
    )


def _swish_half() -> CaseResult:
    entries = tuple(
        Entry(
            output_index=(i,),
            input_index=(i,),
            analytical=0.5 + i / 16,
            numerical=0.53 + i / 15,
            error=abs(0.03 + i / 240),
            tolerance=0.01,
            error_bar=0.09,
        )
        for i in range(4)
    )
    check = CheckResult(
        check="backward",
        outcome=Outcome.INCONCLUSIVE,
        reason="precision",
        details={"dtype": "float16"},
        evidence=Evidence(method="stencil", entries=entries, resolution=0.11, coverage=0.7),
        seconds=0.3,
    )
    return CaseResult(
        case=_case("kernels.act:SwishHalf", "swish-4096", "cuda:0", "float16"),
        outcome=Outcome.INCONCLUSIVE,
        checks=(check,),
        inputs=(_tensor("x", 4096, device="cuda:0", dtype="float16"),),
        outputs=(_tensor("out", 4096, device="cuda:0", dtype="float16"),),
        seconds=0.4,
        worker="cuda:0",
    )


def _rope(double: Outcome) -> CaseResult:
    wrong = _failed(
        "double_backward",
        _finding(
            "jacobian_mismatch_double_backward",
            "double_backward",
            output=0,
            input=0,
            location=Location(path="kernels/rope.py", line=31, symbol="Rope.backward"),
            diagnosis=Diagnosis(pattern="sign", residual=2e-9),
        ),
    )
    return CaseResult(
        case=_case("kernels.rope:Rope", "rope-32x64"),
        outcome=double,
        checks=(
            _passed("backward"),
            _passed("forward_ad"),
            _passed("double_backward") if double is PASSED else wrong,
            _passed("batched_grad"),
            _passed("determinism", resolution=None),
        ),
        inputs=(_tensor("x", 32, 64), _tensor("freqs", 64, grad=False)),
        outputs=(_tensor("out", 32, 64),),
        seconds=0.5,
        worker="cpu",
    )


def _norm() -> CaseResult:
    return CaseResult(
        case=_case("kernels.norm:RmsNorm", "rms-8x64", source=InputSource.OPINFO, reference="opinfo:rms_norm#3"),
        outcome=PASSED,
        checks=(
            _passed("backward"),
            _unsupported("double_backward", "once_differentiable"),
            _unsupported("forward_ad"),
            _passed("batched_grad"),
            _passed("undefined_grad", resolution=None),
            _passed("determinism", resolution=None),
        ),
        inputs=(_tensor("x", 8, 64), _tensor("weight", 64)),
        outputs=(_tensor("out", 8, 64),),
        notes=(Note(code="densified", details={"input": 0}),),
        seconds=0.2,
        worker="cpu",
    )


def _round_ste() -> CaseResult:
    settings = CheckSettings(expect="straight_through", reason="rounding is trained straight through")
    finding = _finding("jacobian_mismatch_backward", "backward", output=0, input=0)
    check = CheckResult(
        check="backward",
        outcome=Outcome.EXPECTED_FAILURE,
        capability=Capability.WRONG,
        findings=(finding,),
        reason="configured",
        details={"reason": settings.reason},
        seconds=0.02,
    )
    return CaseResult(
        case=_case("kernels.quant:RoundSte", "round-16", settings=settings),
        outcome=Outcome.EXPECTED_FAILURE,
        checks=(check, _passed("undefined_grad", resolution=None)),
        inputs=(_tensor("x", 16),),
        outputs=(_tensor("out", 16),),
        seconds=0.05,
        worker="cpu",
    )


def _trunc_pass() -> CaseResult:
    settings = CheckSettings(expect="failure", reason="backward of negative inputs is wrong, ticket 118")
    check = CheckResult(
        check="backward",
        outcome=Outcome.UNEXPECTED_PASS,
        capability=Capability.SUPPORTED,
        seconds=0.02,
    )
    return CaseResult(
        case=_case("kernels.quant:TruncPass", "trunc-16", settings=settings),
        outcome=Outcome.UNEXPECTED_PASS,
        checks=(check,),
        inputs=(_tensor("x", 16),),
        outputs=(_tensor("out", 16),),
        seconds=0.04,
        worker="cpu",
    )


def _flash_attention() -> CaseResult:
    tail = "launching flash_bwd<128, 64> grid=(8, 4)\nkernels/attn.cu:212: misaligned address, continuing\n"
    return CaseResult(
        case=_case("kernels.attn:FlashAttention", "attn-2x8x128", "cuda:0", "bfloat16", source=InputSource.RECORDED),
        outcome=Outcome.CRASHED,
        checks=(_passed("side_effects", resolution=None),),
        inputs=(_tensor("q", 2, 8, 128, 64, device="cuda:0", dtype="bfloat16"),),
        crash=Crash(cause="signal", signal="SIGSEGV", stage="backward", output_tail=tail),
        seconds=2.2,
        worker="cuda:0",
    )


def _block_sparse() -> CaseResult:
    return CaseResult(
        case=_case("kernels.sparse:BlockSparse", "block-256"),
        outcome=Outcome.TIMED_OUT,
        crash=Crash(cause="timeout", limit="60 s", stage="double_backward"),
        seconds=60.0,
        worker="cpu",
    )


def _loader(right: bool = False) -> CaseResult:
    details = {"stage": "forward", "message": "FileNotFoundError: weights/lut.bin"}
    return CaseResult(
        case=_case("kernels.io:Loader", "lut-256"),
        outcome=PASSED if right else Outcome.ERRORED,
        checks=(_passed("backward"),) if right else (),
        reason="" if right else "user_error",
        details={} if right else details,
        seconds=0.02,
        worker="cpu",
    )


def _all_reduce() -> CaseResult:
    return CaseResult(
        case=_case(
            "kernels.dist:AllReduce", "reduce-4", source=InputSource.SYNTHESIZED, reference="synthesized:AllReduce#0"
        ),
        outcome=Outcome.SKIPPED,
        reason="process_group",
        worker="cpu",
    )


def _histogram(right: bool = False) -> CaseResult:
    finding = _finding(
        "jacobian_mismatch_backward",
        "backward",
        output=0,
        input=0,
        certainty=Certainty.LIKELY,
        location=Location(path="kernels/hist.py", line=23, symbol="Histogram.backward"),
        diagnosis=Diagnosis(pattern="tile_multiples", parameters={"tile": 32, "dim": 0}, residual=4e-3),
    )
    return CaseResult(
        case=_case("kernels.hist:Histogram", "hist-4096", "cuda:0"),
        outcome=PASSED if right else FAILED,
        checks=(_passed("backward") if right else _failed("backward", finding),),
        attempts=None if right else Attempts(runs=8, failures=3, seeds=(7, 8, 9, 10, 11, 12, 13, 14)),
        inputs=(_tensor("x", 4096, device="cuda:0"),),
        outputs=(_tensor("out", 64, device="cuda:0"),),
        seconds=0.8,
        worker="cuda:0",
    )


def _small_scale() -> CaseResult:
    note = _finding(
        "small_mismatch",
        "backward",
        output=0,
        input=0,
        location=Location(path="kernels/act.py", line=91, symbol="SmallScale.backward"),
        diagnosis=Diagnosis(pattern="constant_factor", parameters={"factor": 1.0009}, residual=1e-8),
        details={"relative": 9e-4},
    )
    check = CheckResult(
        check="backward", outcome=PASSED, capability=Capability.SUPPORTED, findings=(note,), seconds=0.03
    )
    return CaseResult(
        case=_case("kernels.act:SmallScale", "scale-32"),
        outcome=PASSED,
        checks=(check,),
        inputs=(_tensor("x", 32),),
        outputs=(_tensor("out", 32),),
        seconds=0.05,
        worker="cpu",
    )


def _gather(target: str) -> CaseResult:
    return CaseResult(
        case=_case(target, "gather-64"),
        outcome=PASSED,
        checks=(_passed("backward"),),
        seconds=0.1,
        worker="cpu",
    )
