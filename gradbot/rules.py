"""The catalogue of rules: one stable id for every kind of thing that can be wrong.

An id, once released, keeps its meaning. The first digit groups: 1 derivative values, 2 determinism and linearity,
3 batching, 4 contracts of backward and jvp, 5 inputs and options, 6 capabilities, 7 errors of user code,
8 registration and compilation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gradbot.model import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. `kind` is the readable key, `id` the stable one, `summary` one line without a full stop."""

    id: str
    kind: str
    severity: Severity
    summary: str


ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

_TABLE: tuple[tuple[str, str, Severity, str], ...] = (
    ("GB101", "jacobian_mismatch_backward", ERROR, "the backward-mode Jacobian differs from the numerical one"),
    ("GB102", "jacobian_mismatch_forward", ERROR, "the forward-mode Jacobian differs from the numerical one"),
    ("GB103", "jacobian_mismatch_double_backward", ERROR, "the double backward differs from the numerical derivative"),
    ("GB104", "jacobian_mismatch_forward_over_backward", ERROR, "forward over backward differs from the numerical one"),
    ("GB105", "reference_mismatch", ERROR, "the gradient differs from that of the declared reference"),
    ("GB106", "surrogate_mismatch", ERROR, "the gradient differs from that of the declared surrogate"),
    ("GB107", "low_precision_mismatch", ERROR, "the gradient is right in float64 and wrong in the checked dtype"),
    ("GB108", "needs_input_grad", ERROR, "the gradient changes when other inputs need none"),
    ("GB109", "device_difference", ERROR, "the same case has another verdict or gradient on another device"),
    ("GB110", "invalid_subgradient", ERROR, "at a kink, the gradient lies outside the one-sided derivatives"),
    ("GB111", "small_mismatch", NOTE, "a real error of the gradient that lies within the tolerances"),
    ("GB112", "undeclared_surrogate", WARNING, "the forward is flat almost everywhere and the backward is not zero"),
    ("GB113", "wrong_at_point", ERROR, "the gradient is wrong at the given inputs and right beside them"),
    ("GB201", "nondeterministic", ERROR, "the same derivative computed twice differs by more than nondet_tol"),
    ("GB202", "nondeterministic_forward", ERROR, "the function returns other values for the same inputs"),
    ("GB203", "nonlinear_backward", ERROR, "the backward is not linear in its grad_outputs"),
    ("GB204", "nonlinear_jvp", ERROR, "the jvp is not linear in its tangents"),
    ("GB301", "batched_grad", ERROR, "vmap over the backward fails or disagrees with a loop"),
    ("GB302", "batched_forward_grad", ERROR, "vmap over the jvp fails or disagrees with a loop"),
    ("GB401", "undefined_grad", ERROR, "undefined (None) output grads are not treated as zeros"),
    ("GB402", "undefined_tangent", ERROR, "undefined (None) tangents are not treated as zeros"),
    ("GB403", "backward_not_mul_by_grad_output", ERROR, "zero grad_outputs give non-zero input grads"),
    ("GB404", "wrong_grad_layout", ERROR, "an input grad has another layout than its input"),
    ("GB405", "wrong_grad_sparse_dims", ERROR, "a sparse input grad has other sparse or dense dims than its input"),
    ("GB406", "wrong_grad_size", ERROR, "an input grad has a shape that cannot be reduced to its input's"),
    ("GB407", "wrong_grad_device", ERROR, "an input grad is on another device than its input"),
    ("GB408", "wrong_grad_count", ERROR, "the backward returns too few or too many grads"),
    ("GB409", "grad_dtype", ERROR, "a derivative is complex where its tensor is real"),
    ("GB410", "grad_output_layout", ERROR, "the backward depends on the memory layout of grad_output"),
    ("GB411", "input_mutated", ERROR, "the function changes its inputs"),
    ("GB412", "grad_output_mutated", ERROR, "the backward writes into grad_output"),
    ("GB413", "saved_tensor_mutated", ERROR, "the backward writes into a saved tensor"),
    ("GB414", "global_state_changed", ERROR, "the function changes global RNG, default dtype, grad mode or alike"),
    ("GB415", "no_diff_outputs_nonzero", ERROR, "no output is differentiable, yet outputs vary with the inputs"),
    ("GB416", "buffer_mutated", WARNING, "the function changes buffers of a module"),
    ("GB417", "input_layout", ERROR, "the gradient depends on the memory layout of the inputs"),
    ("GB418", "bad_jvp_contract", ERROR, "a jvp breaks the view, in-place or as-is rules of custom Functions"),
    ("GB501", "output_depends_on_perturbation", ERROR, "number, shape or dtype of the outputs changes near the inputs"),
    ("GB502", "inputs_no_requires_grad", ERROR, "no input tensor requires grad"),
    ("GB503", "overlapping_memory", ERROR, "a checked input shares memory with itself or with another checked input"),
    ("GB504", "nested_input", ERROR, "a tensor requiring grad is hidden inside a list amid the inputs"),
    ("GB505", "sparse_output", ERROR, "an output is sparse"),
    ("GB506", "mkldnn_output", ERROR, "an output is mkldnn"),
    ("GB507", "mkldnn_forward_ad", ERROR, "forward mode was asked for an mkldnn input"),
    ("GB508", "sparse_forward_ad", ERROR, "forward mode was asked for a sparse input"),
    ("GB509", "non_tensor_output", ERROR, "an output is not a tensor"),
    ("GB510", "bad_flags", ERROR, "contradictory options"),
    ("GB511", "double_precision_warning", NOTE, "a checked input is not of double precision"),
    ("GB512", "nondifferentiable_point", NOTE, "the inputs sit on a kink or a jump"),
    ("GB601", "missing_jvp", ERROR, "forward mode was asked for and there is no jvp"),
    ("GB602", "missing_backward", ERROR, "there is no backward"),
    ("GB603", "not_twice_differentiable", ERROR, "the backward cannot be differentiated again"),
    ("GB604", "required_check_unsupported", ERROR, "a check that the configuration requires is not supported"),
    ("GB701", "user_error_in_forward", ERROR, "the function raised"),
    ("GB702", "user_error_in_backward", ERROR, "the backward raised"),
    ("GB703", "user_error_in_jvp", ERROR, "the jvp raised"),
    ("GB801", "registration_schema", ERROR, "the op does not keep its schema: it mutates or aliases undeclared"),
    ("GB802", "registration_autograd", ERROR, "autograd is not registered where torch.library expects it"),
    ("GB803", "registration_fake", ERROR, "the fake kernel disagrees with the real one"),
    ("GB804", "registration_aot_dispatch", ERROR, "the op computes something else under torch.compile's tracing"),
    ("GB805", "compiled_mismatch", ERROR, "gradients under torch.compile differ from eager ones"),
)

RULES: Mapping[str, Rule] = MappingProxyType(
    {kind: Rule(id=id, kind=kind, severity=severity, summary=summary) for id, kind, severity, summary in _TABLE}
)
"""Every rule by kind."""

BY_ID: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in RULES.values()})
"""Every rule by id."""


def find_rule(name: str) -> Rule | None:
    """The rule of an id or a kind, upper and lower case alike; None where there is none."""
    return BY_ID.get(name.upper()) or RULES.get(name.lower())
