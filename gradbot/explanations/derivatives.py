"""Rules on the values of derivatives: GB1xx."""

from __future__ import annotations

from collections.abc import Mapping

from gradbot.explanations.page import Explanation

DERIVATIVES: Mapping[str, Explanation] = {
    "jacobian_mismatch_backward": Explanation(
        meaning=(
            "The backward multiplies grad_output by another matrix than the Jacobian of the forward. The "
            "numerical Jacobian was taken by finite differences with an error bar, and the named entries "
            "differ by more than the tolerance and the error bar together. Training with this gradient "
            "descends on another function."
        ),
        causes=(
            "a factor forgotten or doubled: the inner derivative, a 1/n of a mean, a sign",
            "a term of the product or quotient rule left out",
            "a transposed matmul, a sum or permute over the wrong dim",
            "an index off by one at a tile's edge, so that only rows beyond some index are wrong",
            "a missing conjugate: backwards of complex functions use conj() of the derivative",
            "None returned for an input that the output depends on",
        ),
        remedy=(
            "Start from the pattern that the report names: a constant factor, a slice, a condition. Derive "
            "`grad_input = J^T grad_output` again for that part. `gradbot show` draws where the Jacobian is "
            "wrong."
        ),
        wrong="""
@staticmethod
def backward(ctx, grad_output):  # of cap * tanh(x / cap)
    (x,) = ctx.saved_tensors
    return grad_output * (1 - torch.tanh(x / ctx.cap) ** 2) / ctx.cap, None
""",
        right="""
@staticmethod
def backward(ctx, grad_output):
    (x,) = ctx.saved_tensors
    return grad_output * (1 - torch.tanh(x / ctx.cap) ** 2), None
""",
    ),
    "jacobian_mismatch_forward": Explanation(
        meaning=(
            "The jvp gives another tangent than the Jacobian of the forward times the input tangents. "
            "Reverse mode may be right all the same: jvp and backward are two implementations of one "
            "Jacobian."
        ),
        causes=(
            "a jvp copied from the backward: it needs J v, not J^T v, so matmuls are not transposed",
            "tangents of several inputs not added up, or a None tangent not treated as zero",
            "values saved with save_for_backward only: jvp needs save_for_forward too",
        ),
        remedy="Write `tangent_out = sum_i J_i tangent_i` and compare it term by term with the backward.",
        wrong="""
@staticmethod
def jvp(ctx, x_t, w_t):  # of x @ w
    return x_t @ ctx.w
""",
        right="""
@staticmethod
def jvp(ctx, x_t, w_t):
    return x_t @ ctx.w + ctx.x @ w_t
""",
    ),
    "jacobian_mismatch_double_backward": Explanation(
        meaning=(
            "Differentiating the backward gives another result than the numerical derivative of the "
            "backward. First derivatives may be right: gradient penalties, Hessian products and meta- "
            "learning are what breaks."
        ),
        causes=(
            "tensors kept as attributes of ctx, or saved after detach(): autograd takes them for constants",
            ("an intermediate result of the forward saved that has no history, such as y computed under no_grad"),
            "parts of the backward in NumPy, under torch.no_grad() or through .data",
        ),
        remedy=(
            "Save inputs and outputs with ctx.save_for_backward and compute everything else from them in "
            "the backward with differentiable ops; or mark the backward with @once_differentiable, so that "
            "a second derivative raises instead of being wrong."
        ),
        wrong="""
@staticmethod
def forward(ctx, x):
    ctx.slope = torch.cos(x)  # a constant as far as autograd can see
    return torch.sin(x)

@staticmethod
def backward(ctx, grad_output):
    return grad_output * ctx.slope
""",
        right="""
@staticmethod
def forward(ctx, x):
    ctx.save_for_backward(x)
    return torch.sin(x)

@staticmethod
def backward(ctx, grad_output):
    (x,) = ctx.saved_tensors
    return grad_output * torch.cos(x)
""",
    ),
    "jacobian_mismatch_forward_over_backward": Explanation(
        meaning=(
            "Forward mode through the backward gives another result than the numerical derivative of the "
            "backward: torch.func.hessian and Hessian-vector products of that form are wrong."
        ),
        causes=(
            "the jvp of a Function that the backward calls is wrong or drops a tangent",
            "tensors kept as attributes of ctx: their tangents are lost",
            "an op in the backward that is registered without a forward-mode formula",
        ),
        remedy="Save tensors with save_for_backward and check the jvp of every Function that the backward calls.",
    ),
    "reference_mismatch": Explanation(
        meaning=(
            "The gradient differs from that of the declared `reference`, a plain PyTorch version of the "
            "same function, evaluated in float64."
        ),
        causes=(
            "the kernel or its backward is wrong",
            "reference and kernel are two different functions: another eps, another reduction, another mask",
        ),
        remedy="Compare the outputs of both first; where they agree, the backward is at fault.",
    ),
    "surrogate_mismatch": Explanation(
        meaning="The backward differs from the derivative of the function declared as `surrogate_of`.",
        causes=(
            "the surrogate's slope or width differs between declaration and backward",
            "the declared function is scaled or shifted otherwise",
        ),
        remedy="Make the backward the derivative of the declared surrogate, or declare the one that is meant.",
        right="""
def spike_surrogate(x):
    return torch.sigmoid(4 * x)  # what the backward differentiates instead of the step
""",
    ),
    "low_precision_mismatch": Explanation(
        meaning=(
            "In float64 the gradient is right; in the checked dtype it differs by more than rounding "
            "explains. The bound follows from the dtype and from the forward's own error."
        ),
        causes=(
            "sums accumulated in float16 or bfloat16 instead of float32",
            "an intermediate that overflows, underflows or cancels in the low precision",
            "another code path for that dtype: a kernel, a cast, a constant rounded too early",
        ),
        remedy=(
            "Accumulate in float32 and cast once at the end; subtract before scaling; test that dtype's own kernel."
        ),
        wrong="grad_weight = (grad_output.half() * x.half()).sum(0)",
        right="grad_weight = (grad_output.float() * x.float()).sum(0).to(x.dtype)",
    ),
    "needs_input_grad": Explanation(
        meaning=(
            "The gradient of one input changes, or is missing, when other inputs do not require grad. "
            "Freezing a layer or a table then changes how the rest is trained."
        ),
        causes=(
            "ctx.needs_input_grad is read at the wrong position",
            "an intermediate is computed only if another input needs a gradient",
            "the order of the returned grads shifts when one is left out",
        ),
        remedy="Return one grad per input of forward, in order, with None exactly where needs_input_grad says so.",
        wrong="""
if ctx.needs_input_grad[0]:
    scaled = grad_output * w
    grad_x = scaled * 2
return grad_x, scaled.sum() if ctx.needs_input_grad[1] else None  # scaled is missing if x is frozen
""",
        right="""
scaled = grad_output * w
grad_x = scaled * 2 if ctx.needs_input_grad[0] else None
grad_w = scaled.sum() if ctx.needs_input_grad[1] else None
return grad_x, grad_w
""",
    ),
    "device_difference": Explanation(
        meaning="The same case, with the same seed, has another verdict or another gradient on another device.",
        causes=(
            "one of two kernels is wrong: each device has its own implementation",
            "TF32 or reduced-precision reductions are on for one of them",
            "an atomics race on the GPU",
        ),
        remedy="Look at which device disagrees with the numerical derivative; that one's kernel is at fault.",
    ),
    "invalid_subgradient": Explanation(
        meaning=(
            "The inputs sit on a kink, where any value between the one-sided derivatives would be right. "
            "The backward returns one outside that interval."
        ),
        causes=(
            "two branches both added at a tie, as in max or clamp with equal bounds",
            "a comparison with <= on both sides of a case distinction",
        ),
        remedy="Let exactly one branch, or a mean of both, contribute at a tie.",
        wrong="grad_x = grad_output * ((x >= 0).to(x.dtype) + (x <= 0) * slope)  # at 0 both count",
        right="grad_x = grad_output * torch.where(x >= 0, 1.0, slope)",
    ),
    "small_mismatch": Explanation(
        meaning=(
            "The gradient has a real error, larger than the error of the numerical derivative, that lies "
            "inside the tolerances. It does not fail; it is worth a look, because tolerances are meant for "
            "rounding."
        ),
        causes=(
            "a rounded constant, such as 0.797 for sqrt(2 / pi)",
            "a truncated series or too few iterations in the backward",
            "an eps added in the forward and left out in the backward",
        ),
        remedy=(
            "Use the same constants in forward and backward, or tighten atol and rtol for this target to keep it so."
        ),
    ),
    "undeclared_surrogate": Explanation(
        meaning=(
            "The forward is flat almost everywhere, so that its true derivative is zero, and the backward "
            "is not: a straight-through estimator or a surrogate gradient, if that is meant."
        ),
        causes=("a quantiser, step or spike with a surrogate gradient that is not declared",),
        remedy="Declare it, so that the backward is checked against what is meant.",
        right="""
# pyproject.toml
# [tool.gradbot.targets."pkg.quant:*"]
# expect = "straight_through"
# reason = "rounding is trained straight through"
""",
    ),
    "wrong_at_point": Explanation(
        meaning=("The gradient is wrong at the given inputs and right a step beside them: a special case is at fault."),
        causes=(
            "a branch for an edge: zero, a bound, equal inputs, an empty group",
            "0 / 0 or inf * 0 resolved to 0 or NaN there",
        ),
        remedy="Look at the branch that these inputs take; take the limit of the derivative there.",
        wrong="return grad_output * torch.sin(x) / x  # NaN at 0",
        right="return grad_output * torch.where(x == 0, 1.0, torch.sin(x) / torch.where(x == 0, 1.0, x))",
    ),
}
