"""Findings, outcomes, reasons and notes in words: the only place where sentences about gradients are made.

Codes travel through reports; words are looked up here when something is shown. Templates are filled by
`str.format_map` from the details that travel with the code; a detail that is missing shows as `?`.
"""

from __future__ import annotations

import math
import shlex
import string
from collections.abc import Mapping

from gradbot.model import Case, Certainty, Crash, Diagnosis, Finding, InputSource, Note, Number, Outcome, Scalar, Spread
from gradbot.rules import RULES

PATTERNS: Mapping[str, str] = {
    "constant_factor": "{analytical} is {factor}× the true derivative, everywhere",
    "sign": "{analytical} has the wrong sign, everywhere",
    "transpose": "the gradient is transposed",
    "jacobian_transposed": "the Jacobian is applied where its transpose is due",
    "permutation": "the gradient is permuted along dim {dim}",
    "missing_conj": "a conjugation is missing",
    "missing_term": "a term is missing: the error is {factor} × {quantity}",
    "doubled_term": "a term is one too many or counted twice: the error is {factor} × {quantity}",
    "missing_factor": "a factor is missing: {analytical} lacks {quantity}",
    "extra_factor": "a factor is one too many: {analytical} is multiplied by {quantity}",
    "grad_output_ignored": "grad_output is ignored",
    "grad_output_first_element": "only the first element of grad_output is used",
    "grad_output_reduced": "only the {what} of grad_output is used",
    "grad_output_strides": "the strides of grad_output are ignored",
    "other_cotangent": "the cotangent of output {other} is used for output {output}",
    "zero_rows": "the gradient is zero at {side} rows {rows}, and should not be",
    "swapped_rows": "the gradients of {side} rows {first} and {second} are swapped",
    "scaled_slices": "{analytical} is {factor}× the true derivative at {side} dim {dim}, index {rows}; right elsewhere",
    "zero_elements": "{analytical} is zero at {side} element {rows}, right elsewhere",
    "scaled_elements": "{analytical} is {factor}× the true derivative at {side} element {rows}, right elsewhere",
    "copied_slice": "index {first} of {side} dim {dim} has the gradient of index {second}",
    "beyond_index": "wrong from index {index} of dim {dim} on",
    "tile_multiples": "wrong at multiples of {tile} along dim {dim}",
    "mean_subtracted": "the mean was subtracted from the gradient",
    "detached_branch": "one branch is detached: its contribution is missing",
    "detached_at": "a branch is detached at {place}: with its history put back the gradient is right",
    "dtype_round_trip": "values passed through {dtype} on the way",
    "only_where": "wrong only where {condition}",
    "none_gradient": "None is returned for an input that the output depends on",
    "second_saved_detached": "the second derivative takes {name}, saved by forward without a history, for a constant",
    "second_ctx_attribute": "the second derivative takes {name}, an attribute of ctx, for a constant",
    "second_no_grad": "the backward computes out of autograd's sight: {name}",
    "not_finite": "{analytical} is {what} at {count} entries ({where})",
    "compound": "one pattern does not explain the whole error",
}

REASONS: Mapping[str, str] = {
    "no_case": "no case was run for it",
    "no_inputs": "no inputs are known; declare cases, or record them with gradbot record -- pytest",
    "kink": "the inputs sit on a kink; the gradient is valid there",
    "jump": "the function jumps at the inputs",
    "domain": "the inputs sit on the edge of the domain: a step leaves it",
    "precision": "the noise of {dtype} is too large to tell",
    "moves_in_steps": "the forward moves in steps or is noisy where differences are taken; over wide ones it agrees",
    "right_on_average": (
        "the gradient is not that of the forward under any one draw of its random numbers, but right on average: "
        "an estimate, if that is meant"
    ),
    "right_for_product": (
        "the gradient is not that of the output R, but that of R Rᵀ is right: if that is what R is for, declare "
        'invariant = "gradbot.engine.projections:span"'
    ),
    "not_supported": "the target does not offer this derivative",
    "once_differentiable": "the backward is once_differentiable",
    "not_selected": "this check was not selected",
    "device_missing": "the device {device} is not there",
    "interrupted": "the run was interrupted before it got here",
    "ignored_rules": "what it found is of rules that the configuration ignores: {rules}",
    "process_group": "the function needs a process group",
    "configured": "{reason}",
    "import_failed": "its module could not be imported: {message}",
    "undeclared_surrogate": "the forward is flat and the backward is not: a surrogate gradient, if that is meant",
    "no_reference": "no reference is declared",
    "not_compilable": "torch.compile cannot trace it in one graph: {message}",
    "user_error": "{stage} raised {message}",
    "internal_error": "gradbot itself broke, which says nothing about the gradient; please report it: {message}",
    "no_backward": "there is no backward",
    "no_jvp": "there is no jvp",
    "no_formula": "no derivative formula is registered for it",
    "numpy_backward": "the backward leaves torch (NumPy), so that it cannot be differentiated",
    "empty": "the inputs have no elements",
    "no_second_derivative": "the second derivative raises {message}",
    "detached_backward": "the backward detaches what it returns, so that it cannot be differentiated",
    "not_implemented": "torch does not implement it: {message}",
    "tangent_dropped": "there is no jvp: torch drops the tangent without a word",
    "no_forward_ad_layout": "forward mode does not support this layout",
    "no_batching": "it does not run under vmap: {message}",
    "no_batching_layout": "vmap does not support this layout",
    "no_differentiable_input": "no argument is a floating-point or complex tensor",
    "no_differentiable_output": "no output is differentiable",
    "one_input": "only one input is checked",
    "captured_inputs": "the function captures its inputs by closure",
    "random_batched": "the function draws random numbers, which vmap would draw otherwise",
    "backward_raises": "the backward raises, as its own check says: {message}",
    "raises_when_frozen": "with {frozen} frozen it raises {message}",
    "only_on_copies": (
        "the backward raises {message} where the call is made again on copies, and not as it was made: "
        "something beside its arguments holds them, and it cannot be checked"
    ),
    "out_of_time": "its time, {limit}, was over before the checks were",
    "stale_recording": "the recorded call no longer fits: {message}; record again",
    "undecided": "neither the gradient nor the point could be shown to be wrong",
    "not_an_op": "the target is not a registered op",
    "opcheck_skipped": "no input requires grad",
    "expected": "declared {expect}: {expected_reason}",
    "unexpected_pass": "declared {expect} ({expected_reason}), yet it is right",
}

NOTES: Mapping[str, str] = {
    "resampled": "the inputs were moved off the point at which nothing could be told, as allowed",
    "densified": "input {input} overlaps itself in memory; a dense copy was checked",
    "random_replayed": "the function draws random numbers; it was replayed under a fixed RNG state",
    "triton_interpreted": "Triton kernels ran in the interpreter (TRITON_INTERPRET=1)",
    "worker_exit": "a worker died while it ended, after its cases were done: {message}",
    "discovery": "{message}",
    "requires_grad_assumed": "no input was marked as requiring grad; every floating-point one was checked",
    "symmetric_assumed": (
        "{count} recorded input(s) are symmetric matrices: steps kept them so; to declare that, "
        'projection = "gradbot.engine.projections:symmetric"'
    ),
    "grad_assumed": (
        "no recorded call asked for a gradient; assumed of {count} of {of} floating-point inputs, "
        "those that the backward gives a gradient"
    ),
    "walked_once": (
        "its backward runs once a graph, or under .backward() alone: the function was called anew for every gradient"
    ),
    "inputs_freed": "the function frees the memory of {inputs}; every call got copies",
    "shared_by_draws": (
        "random numbers decide which of many equal outputs comes: what all of them share was checked; to declare that, "
        'invariant = "gradbot.engine.projections:span", or "…:without_sign"'
    ),
    "held_back": (
        "not checked by {inputs}: something passed beside them holds what was computed from them, "
        "so that no step reaches it"
    ),
    "captured_inputs": "the function captures its inputs by closure; steps were taken in their own memory",
    "bounded": "{done} of {of} variants were tried, as time allowed",
    "not_batched": "{form} could not be tried: {message}",
    "opcheck_skipped": "opcheck's {test} had nothing to test: no input requires grad",
}

_BESIDE = "Seen beside the inputs, moved by {beside} of their size, as they sit on a kink"

EXPLANATIONS: Mapping[str, tuple[str, ...]] = {
    "jacobian_mismatch_backward": ("Seen beside the inputs, moved by {beside} of their size, as they sit on a kink",),
    "jacobian_mismatch_double_backward": (
        "Seen beside the inputs, moved by {beside} of their size, as they sit on a kink",
    ),
    "small_mismatch": ("The largest error is {relative_error} of the entry",),
    "low_precision_mismatch": ("The largest error is {relative_error} of the entry",),
    "reference_mismatch": ("The {what} differs from the reference's by a relative {relative_error}",),
    "surrogate_mismatch": ("The {what} differs from the surrogate's by a relative {relative_error}",),
    "compiled_mismatch": ("The largest difference is {relative_error} of the entry",),
    "needs_input_grad": (
        "With {frozen} frozen the backward raised {message}",
        "With {frozen} frozen, the gradient of this input is another one",
    ),
    "undeclared_surrogate": ("If it is meant, declare it: {configuration}",),
    "device_difference": (
        "{case} in {dtype} is right on {right_on} and wrong on {wrong_on}",
        "{first} and {second} differ by up to {largest}",
    ),
    "nondeterministic": ("The largest difference is {largest}, nondet_tol is {nondet_tol}",),
    "nonlinear_backward": (
        "Scaling grad_outputs by {scale} scales the grads by {factor}",
        "The grads are off by {deviation}",
    ),
    "nonlinear_jvp": (
        "Scaling the tangents by {scale} does not scale the jvp alike",
        "The tangents are off by {deviation}",
    ),
    "batched_grad": ("{form} raised {message}", "{form} disagrees with a loop", "vmap raised {message}"),
    "batched_forward_grad": ("{form} raised {message}", "{form} disagrees with a loop", "vmap raised {message}"),
    "undefined_grad": (
        "With grad_outputs of {undefined} undefined the backward raised {message}",
        "Wrong with grad_outputs of {undefined} undefined",
    ),
    "grad_output_layout": (
        "With a {layout} grad_output the backward raised {message}",
        "Right for a contiguous grad_output, wrong for a {layout} one",
    ),
    "input_layout": (
        "With {layout} inputs it raised {message}",
        "Right for contiguous inputs, wrong for {layout} ones",
    ),
    "wrong_grad_size": ("The input has shape {expected}, its grad {found}",),
    "wrong_grad_layout": ("The input has layout {expected}, its grad {found}",),
    "wrong_grad_device": ("The input is on {expected}, its grad on {found}",),
    "wrong_grad_count": ("The forward takes {expected} inputs, the backward returned {found} grads",),
    "grad_dtype": ("The tensor is {expected}, its derivative {found}",),
    "global_state_changed": ("{state} is another one after {stage}",),
    "buffer_mutated": ("It changes the buffer {buffer}",),
    "registration_schema": ("opcheck's {test}: {message}",),
    "registration_autograd": ("opcheck's {test}: {message}",),
    "registration_fake": ("opcheck's {test}: {message}",),
    "registration_aot_dispatch": ("opcheck's {test}: {message}",),
}
"""By kind: sentences with the numbers of a finding; the first one whose details are all there is said."""

OUTCOMES: Mapping[Outcome, str] = {
    Outcome.PASSED: "right",
    Outcome.FAILED: "wrong",
    Outcome.INCONCLUSIVE: "inconclusive",
    Outcome.UNSUPPORTED: "not supported",
    Outcome.EXPECTED_FAILURE: "fails, as expected",
    Outcome.UNEXPECTED_PASS: "passes, although a failure is declared",
    Outcome.SKIPPED: "skipped",
    Outcome.ERRORED: "raised",
    Outcome.CRASHED: "crashed",
    Outcome.TIMED_OUT: "timed out",
}

CERTAINTIES: Mapping[Certainty, str] = {
    Certainty.CERTAIN: "certain",
    Certainty.LIKELY: "likely, not confirmed a second way",
}

SOURCES: Mapping[InputSource, str] = {
    InputSource.DECLARED: "declared",
    InputSource.RECORDED: "recorded",
    InputSource.OPINFO: "from OpInfo",
    InputSource.GRADCHECK_CALL: "from a gradcheck call",
    InputSource.SYNTHESIZED: "synthesised",
}

_FORMULAS: Mapping[str, str] = {
    "constant_factor": "analytical = {factor} × numerical",
    "sign": "analytical = −numerical",
    "transpose": "analytical = numericalᵀ",
    "missing_conj": "analytical = conj(numerical)",
    "missing_term": "numerical − analytical = {factor} × {quantity}",
    "doubled_term": "analytical − numerical = {factor} × {quantity}",
}


class _Details(dict[str, Scalar]):
    def __missing__(self, key: str) -> str:
        return "?"


def number(value: Number, digits: int = 4) -> str:
    """A number in `digits` significant digits, below 1/1,000 with an exponent, unpadded: `8.5e-4`; `1+2i`."""
    if isinstance(value, complex):
        imaginary = number(value.imag, digits)
        return f"{number(value.real, digits)}{'' if imaginary.startswith('-') else '+'}{imaginary}i"
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    plain = f"{value:.{digits}g}"
    if 0 < abs(value) < 1e-3 and "e" not in plain:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        plain = f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{exponent}"
    mantissa, e, exponent = plain.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def fill(template: str, details: Mapping[str, Scalar]) -> str:
    """A template with its details; floats in five significant digits."""
    shown = {key: number(value, 5) if isinstance(value, float) else value for key, value in details.items()}
    return template.format_map(_Details(shown))


def _said(templates: Mapping[str, str], code: str, details: Mapping[str, Scalar]) -> str:
    """The sentence of a code; an unknown code as it is, for it may come from anywhere and is no template."""
    template = templates.get(code)
    return code if template is None else fill(template, details)


_ANALYTICAL: Mapping[str, str] = {
    "forward_ad": "the jvp",
    "double_backward": "the double backward",
    "forward_over_backward": "forward over backward",
    "batched_grad": "the batched backward",
    "batched_forward_grad": "the batched jvp",
}
"""By check: what the analytical derivative is called; `backward` elsewhere."""


def diagnosis_text(diagnosis: Diagnosis, check: str = "") -> str:
    """A diagnosis in one sentence, without a full stop."""
    analytical = _ANALYTICAL.get(check, "backward")
    return _said(PATTERNS, diagnosis.pattern, {"analytical": analytical, **diagnosis.parameters})


def headline(finding: Finding) -> str:
    """What is wrong, in one line without a full stop: the diagnosis where there is one, else the rule's summary."""
    if finding.diagnosis is not None:
        return diagnosis_text(finding.diagnosis, finding.check)
    if (
        finding.evidence is not None
        and finding.evidence.spreads
        and finding.kind in ("nondeterministic", "nondeterministic_forward")
    ):
        worst = max(finding.evidence.spreads, key=lambda spread: (spread.differing, spread.largest))
        return spread_headline(worst)
    rule = RULES.get(finding.kind)
    return rule.summary if rule else finding.kind


def spread_headline(spread: Spread) -> str:
    """How far repeats differ and how often: `backward differs by up to 3e-7 in 6 of 8 repeats`."""
    stage = spread.stage.replace("_", " ")
    return f"{stage} differs by up to {number(spread.largest, 2)} in {spread.differing} of {spread.repeats} repeats"


def reason_text(code: str, details: Mapping[str, Scalar]) -> str:
    """Why something was not decided or not done, in one line."""
    return _said(REASONS, code, details)


def note_text(note: Note) -> str:
    """A note in one line."""
    return _said(NOTES, note.code, note.details)


def formula(diagnosis: Diagnosis) -> str:
    """A diagnosis as an equation between the two Jacobians; empty where it has none."""
    return fill(_FORMULAS.get(diagnosis.pattern, ""), diagnosis.parameters)


def crash_text(crash: Crash) -> str:
    """How a worker ended, in one line without a full stop."""
    where = f" during {crash.stage}" if crash.stage else ""
    said = f": {crash.message}" if crash.message else ""
    if crash.cause == "timeout":
        return f"still running after {crash.limit or 'its time limit'}{where}, and was stopped{said}"
    if crash.cause == "memory":
        return f"ran out of memory{f' (limit {crash.limit})' if crash.limit else ''}{where}{said}"
    if crash.cause == "signal":
        return f"died of {crash.signal or 'a signal'}{where}{said}"
    if crash.cause == "exit":
        code = "" if crash.exit_code is None else f" with exit code {crash.exit_code}"
        return f"ended its process{code}{where}{said}"
    if crash.cause == "protocol":
        return f"its worker stopped making sense{where}{said}"
    return f"raised{where}{said}"


def reproduction(case: Case) -> str:
    """The one command that runs a case again, quoted for a POSIX shell.

    A call that was checked in place is there only while the test that makes it runs.
    """
    if case.reference.startswith("in_place:"):
        package = [] if "::" in case.target else ["-p", case.target.partition(":")[0].partition(".")[0]]
        made_by = ["pytest", case.test_id] if case.test_id else ["COMMAND"]
        return shlex.join(["gradbot", "record", "--check", *package, "--", *made_by])
    words = ["gradbot", "check", case.target, "--case", case.name, "--device", case.device, "--dtype", case.dtype]
    return shlex.join([*words, "--seed", str(case.seed)])


def quoted(word: str) -> str:
    """One word for a POSIX shell."""
    return shlex.quote(word)


def explanation(finding: Finding) -> str:
    """What a finding's own numbers say beyond its headline; empty where they say nothing more."""
    for template in EXPLANATIONS.get(finding.kind, ()):
        names = [name for _, name, _, _ in string.Formatter().parse(template) if name]
        if all(finding.details.get(name) not in (None, "") for name in names):
            return fill(template, finding.details)
    message = finding.details.get("message")
    return str(message) if message else ""
