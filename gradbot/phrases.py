"""What the exceptions and warnings of `gradcheck` and `gradgradcheck` say.

Suites match these texts with regular expressions, so that they are torch's own wherever torch has some. Templates are
filled from the details that travel with a finding.
"""

from __future__ import annotations

from collections.abc import Mapping

_OVERLAP = "You should call .contiguous on the input before passing it to gradcheck."
_TO_DENSE = "Please call to_dense(masked_grad=...) on the output of fn for gradcheck."
_UNDEFINED = 'Please look at "Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'
_SAME = "Expected `func` to return outputs with the same"

_PHRASES: Mapping[str, str] = {
    # options
    "no_mode": "Expected at least one of check_forward_ad or check_backward_ad to be True",
    "no_second_mode": "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True",
    "needs": "Setting {option}=True requires {needed} to be True",
    # inputs
    "double_precision_warning": "Input #{input} requires gradient and is not a double precision floating point or "
    "complex. This check will likely fail if all the inputs are not of double precision floating point or complex. ",
    "inputs_no_requires_grad": "gradcheck expects at least one input tensor to require gradient, but none of them have "
    "requires_grad=True.",
    "nested_input": "gradcheck expects tensors that require gradient to be inputs of their own, but one is hidden "
    "inside the {input}th input, a {type}. Pass it as an argument of its own, or detach it.",
    "zero_stride": "The {input}th input has a dimension with stride 0. gradcheck only supports inputs that are "
    f"non-overlapping to be able to compute the numerical gradients correctly. {_OVERLAP}",
    "overlaps_itself": "The {input}th input overlaps itself: several of its elements lie at the same place in memory. "
    f"gradcheck moves one element at a time. {_OVERLAP}",
    "overlaps_another": "The {other}th and the {input}th input overlap: they share memory, so that gradcheck cannot "
    "move an element of one alone. You should clone one of them before passing it to gradcheck.",
    "mkldnn_forward_ad": "MKLDNN inputs are not support for forward AD gradcheck.",
    "sparse_forward_ad": "Sparse inputs are not supported for forward AD gradcheck. Check them in backward mode only.",
    # outputs
    "non_tensor_output": "gradcheck expects `func` to return tensors, but output {output} is a {type}. Return a tensor "
    "or a tuple of tensors.",
    "sparse_output": f"Sparse output is not supported at gradcheck yet. {_TO_DENSE}",
    "mkldnn_output": f"MKLDNN output is not supported at gradcheck yet. {_TO_DENSE}",
    "other_number": "Expected `func` to return the same number of outputs when inputs are perturbed {where}, but got: "
    "{before} and {after} outputs.",
    "other_shape": f"{_SAME} shape when inputs are perturbed {{where}}, but got: shapes {{before}} and {{after}}.",
    "other_dtype": f"{_SAME} dtype when inputs are perturbed {{where}}, but got: dtypes {{before}} and {{after}}.",
    # the function itself
    "input_mutated": "The function changes its inputs: the values of input {input} are others after a call. Work on a "
    "copy in the function.",
    "nondeterministic_forward": "The function is not deterministic: called twice with the same inputs it returns "
    "values that differ by {largest}. Seed its random numbers inside. "
    "The tolerance for nondeterminism was {nondet_tol}.",
    "no_diff_outputs_nonzero": "Numerical gradient for function expected to be zero{because}, but output {output} "
    "varies with input {input}: the slope is {numerical}.",
    # Jacobians
    "mismatch": "{prefix}Jacobian {mode}mismatch for output {output} with respect to input {input},",
    "largest_difference": "The max per-element difference (slow mode) is: {largest}.",
    "once_differentiable": "The backward is marked with @once_differentiable.",
    # determinism and linearity
    "nondeterministic_backward": "Backward is not reentrant, i.e., running backward with same input and grad_output "
    "multiple times gives different values. The largest difference is {largest}. The tolerance for nondeterminism was "
    "{nondet_tol}.",
    "nondeterministic_jvp": "Forward AD is not reentrant, i.e., running it with same input and tangents multiple times "
    "gives different values. The largest difference is {largest}. The tolerance for nondeterminism was {nondet_tol}.",
    "nondeterministic_note": "NOTE: If your op relies on non-deterministic operations i.e., it is listed here:\n"
    "https://pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html\n"
    "this failure might be expected. Call gradcheck or gradgradcheck with `nondet_tol=<tol>` then.",
    "nonlinear_backward": "Backward is not linear in grad_output: scaling or adding grad_outputs does not scale or add "
    "the input grads. The largest deviation is {deviation}, relative to the largest input grad.",
    "nonlinear_jvp": "Forward AD is not linear in the tangents: scaling or adding tangents of the inputs does not "
    "scale or add those of the outputs. The largest deviation is {deviation}, relative to the largest tangent.",
    # the form of gradients
    "analytical_size": "Analytical gradient has incorrect size: {found} for an input of {expected}",
    "zeros_ignored": "backward not multiplied by grad_output",
    "layout": "grad is incorrect layout ({found} is not {expected})",
    "sparse_dims": "grad is {layout} tensor, but has incorrect {which} {found}, expected {expected}",
    "form": "grad is incorrect {which}: {found}, expected {expected}",
    "tangent_dtype": "Forward AD gradient has dtype mismatch. The tangent of output {output} is {found}, the output is "
    "{expected}.",
    # undefined grads and tangents
    "undefined_raises": f"Expected backward function to handle undefined output grads. {_UNDEFINED}",
    "undefined_nonzero": "Expected all input grads to be undefined or zero when all output grads are undefined or "
    f"zero. {_UNDEFINED}",
    "undefined_warning": "Backwards compatibility: New undefined gradient support checking feature is enabled by "
    "default, but it may break existing callers of this function. If this is true for you, you can call this function "
    'with "check_undefined_grad=False" to disable the feature',
    "undefined_tangent": "Mismatch in tangent values for output with index: {output} when input: {input} has an "
    "undefined tangent value. Got: {found} but expected: {expected}",
    # batches
    "batched_raises": "While computing batched gradients, got: {message}",
    "batched_differs": "For output {output} and input {input}:",
    "batched_grad": "gradcheck or gradgradcheck failed while testing batched gradient computation.\n"
    "Call it with `check_batched_grad=False` if batched gradients are not meant to be supported. The most common cause "
    "is an\noperation in the backward that vmap does not support, such as .item(), NumPy, or a branch on the values of "
    "a tensor.",
    "batched_forward_grad": "gradcheck failed while testing batched gradient computation with forward-mode AD.\n"
    "Call it with `check_batched_forward_grad=False` if batched forward gradients are not meant to be supported.",
    # the deprecated getters
    "deprecated": "`{name}` was part of PyTorch's private API and not meant to be exposed. We are deprecating it and "
    "it will be removed in a future version of PyTorch. If you have a specific use for this or feature request for "
    "this to be a stable API, please file us an issue at https://github.com/pytorch/pytorch/issues/new",
    "other_grad_out": "Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0.",
    "complex_output": "Expected output to be non-complex. {name} no longer supports functions that return complex "
    "outputs.",
    "complex_slope": "Expected ds_dx to be real-valued, not complex.",
    "not_requiring_grad": "Expected input to have requires_grad=True",
}


def phrase(code: str, **details: object) -> str:
    """The text of `code`, filled from `details`; numbers that are not whole in six significant digits."""
    shown = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in details.items()}
    return _PHRASES[code].format(**shown)
