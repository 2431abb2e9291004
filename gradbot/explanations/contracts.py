"""Rules on what backward, jvp and forward must and must not do: GB4xx."""

from __future__ import annotations

from collections.abc import Mapping

from gradbot.explanations.page import Explanation

CONTRACTS: Mapping[str, Explanation] = {
    "undefined_grad": Explanation(
        meaning=(
            "When an output takes no part in the loss, its grad_output may be None (with "
            "set_materialize_grads(False), or in C++). The backward then raises, or gives another result "
            "than with zeros."
        ),
        causes=(
            "set_materialize_grads(False) without a test for None",
            "an early return of None for all inputs when one grad_output is None",
        ),
        remedy="Treat None as zeros, output by output.",
        wrong="""
def backward(ctx, grad_a, grad_b):
    return grad_a * ctx.ka + grad_b * ctx.kb
""",
        right="""
def backward(ctx, grad_a, grad_b):
    grad = None
    if grad_a is not None:
        grad = grad_a * ctx.ka
    if grad_b is not None:
        grad = grad_b * ctx.kb if grad is None else grad + grad_b * ctx.kb
    return grad
""",
    ),
    "undefined_tangent": Explanation(
        meaning="Inputs without a tangent give None to the jvp; it raises, or does not treat them as zeros.",
        causes=("set_materialize_grads(False) without a test for None in the jvp",),
        remedy="Skip the terms whose tangent is None.",
        wrong="return x_t * ctx.y + y_t * ctx.x",
        right="return sum(t * v for t, v in ((x_t, ctx.y), (y_t, ctx.x)) if t is not None)",
    ),
    "backward_not_mul_by_grad_output": Explanation(
        meaning=(
            "With grad_outputs of zeros the input grads are not zero: something is added that grad_output "
            "does not scale."
        ),
        causes=(
            "a regulariser or penalty added inside the backward",
            "grad_output left out of one of the terms",
            "0 * inf: a derivative that overflows gives NaN where grad_output is zero",
        ),
        remedy="Every term of the backward is a product with grad_output; add penalties to the loss.",
        wrong="return grad_output * slope + ctx.decay * weight",
        right="return grad_output * slope",
    ),
    "wrong_grad_layout": Explanation(
        meaning=(
            "The grad of an input has another layout than the input: a sparse one for a strided input, or the reverse."
        ),
        causes=(
            "a sparse kernel's result returned as it is",
            "to_dense() or to_sparse() forgotten",
        ),
        remedy="Return the grad in the input's own layout.",
        wrong="return grad_sparse",
        right="return grad_sparse.to_dense()",
    ),
    "wrong_grad_sparse_dims": Explanation(
        meaning="The grad of a sparse input is sparse too, with another split into sparse and dense dims.",
        causes=("the grad was built with indices over other dims than the input has",),
        remedy="Give the grad as many sparse_dim() and dense_dim() as the input.",
    ),
    "wrong_grad_size": Explanation(
        meaning=(
            "The grad of an input has a shape that cannot be reduced to the input's. Shapes that "
            "broadcasting made larger are summed by autograd; any other shape is an error."
        ),
        causes=(
            "a reduction over the wrong dim, or one that is missing",
            "a transposed or flattened grad returned",
        ),
        remedy="Reduce over exactly the dims that the input was expanded along, and reshape to the input's shape.",
        wrong="return grad_output.sum(1)  # of bias with shape (features,), grad_output (batch, features)",
        right="return grad_output.sum(0)",
    ),
    "wrong_grad_device": Explanation(
        meaning="The grad of an input is on another device than the input.",
        causes=(
            "a constant or buffer made on the default device",
            "work done on the host and not brought back",
        ),
        remedy="Make new tensors with grad_output.new_zeros(...) or device=x.device.",
        wrong="return torch.zeros(n) + grad_output.cpu()",
        right="return grad_output.new_zeros(n) + grad_output",
    ),
    "wrong_grad_count": Explanation(
        meaning=(
            "The backward returns too few or too many grads: one is due per argument of forward, None for "
            "those without."
        ),
        causes=(
            "an argument was added to forward and not to backward",
            "non-tensor arguments were not counted",
        ),
        remedy="Return a tuple as long as forward's arguments after ctx.",
        wrong="return grad_output * ctx.scale  # forward(ctx, x, scale)",
        right="return grad_output * ctx.scale, None",
    ),
    "grad_dtype": Explanation(
        meaning="A derivative is complex where its tensor is real: autograd keeps the real part and drops the rest.",
        causes=("a real input that meets complex numbers, with the final .real left out",),
        remedy="Return the real part for real inputs.",
        wrong="return grad_output * w.conj()  # x is real",
        right="return (grad_output * w.conj()).real",
    ),
    "grad_output_layout": Explanation(
        meaning=(
            "The backward gives another result when the same grad_output has another memory layout: "
            "transposed, expanded, sliced, channels-last. PyTorch's own gradcheck passes contiguous ones "
            "only, training does not: the grad of sum() is expanded, that of a transpose is transposed."
        ),
        causes=(
            "a kernel that reads grad_output through data_ptr() as if it were contiguous",
            "grad_output.view(-1) or as_strided with strides of another tensor",
        ),
        remedy="Call grad_output = grad_output.contiguous() first, or pass the strides to the kernel.",
        wrong="kernel[grid](grad_output, grad_x, n)",
        right="kernel[grid](grad_output.contiguous(), grad_x, n)",
    ),
    "input_mutated": Explanation(
        meaning="The function changes a tensor that it was given, without saying so.",
        causes=(
            "an in-place op (x.mul_(2)) on an argument",
            "a kernel that uses its input as scratch space",
        ),
        remedy="Work on a clone; or call ctx.mark_dirty(x) and return x if the change is meant.",
        wrong="return x.clamp_(min=0)",
        right="return x.clamp(min=0)",
    ),
    "grad_output_mutated": Explanation(
        meaning=(
            "The backward writes into grad_output. Autograd hands the same tensor to other branches of the "
            "graph, whose gradients are wrong from then on; gradcheck does not see it, because it uses "
            "every grad_output once."
        ),
        causes=("grad_output.mul_(...) or grad_output[mask] = 0 to save memory",),
        remedy="Make a new tensor.",
        wrong="grad_output[x < 0] = 0; return grad_output",
        right="return grad_output.masked_fill(x < 0, 0)",
    ),
    "saved_tensor_mutated": Explanation(
        meaning=(
            "The backward writes into a tensor that was saved: a second backward through the same graph is wrong."
        ),
        causes=(
            "a saved buffer reused as scratch space",
            "an in-place op on ctx.saved_tensors",
        ),
        remedy="Clone before writing; recompute instead of reusing.",
        wrong="(y,) = ctx.saved_tensors; return y.mul_(grad_output)",
        right="(y,) = ctx.saved_tensors; return y * grad_output",
    ),
    "global_state_changed": Explanation(
        meaning=(
            "After the call the process is not as before: the global random state was reseeded, or the "
            "default dtype, grad mode, thread count or a similar setting is another one."
        ),
        causes=(
            "torch.manual_seed inside a forward",
            "torch.set_grad_enabled or set_default_dtype without restoring it when an exception passes",
        ),
        remedy="Use torch.random.fork_rng(), a torch.Generator, or the context-manager form of the setting.",
        wrong="torch.manual_seed(0); mask = torch.rand(n) < p",
        right="g = torch.Generator().manual_seed(0); mask = torch.rand(n, generator=g) < p",
    ),
    "no_diff_outputs_nonzero": Explanation(
        meaning="No output is differentiable, yet the outputs vary with the inputs: gradients silently stop here.",
        causes=(
            "detach(), .data or no_grad in the function",
            "ctx.mark_non_differentiable on the output",
        ),
        remedy="Leave the graph intact, or mark the target as not differentiable by skipping it with a reason.",
    ),
    "buffer_mutated": Explanation(
        meaning=(
            "The module changes its buffers when it is called, as a running mean does: two calls see another function."
        ),
        causes=(
            "BatchNorm and the like in training mode",
            "a step counter or cache kept in a buffer",
        ),
        remedy="Check the module in eval() mode, or pass the state in and out.",
    ),
    "input_layout": Explanation(
        meaning=(
            "The gradient is another one when the same inputs lie otherwise in memory: transposed, sliced, "
            "channels-last."
        ),
        causes=(
            "a kernel that assumes contiguous inputs",
            "strides saved from one tensor and used for another",
        ),
        remedy="Call contiguous() on inputs before the kernel and save that tensor, or use their strides.",
    ),
    "bad_jvp_contract": Explanation(
        meaning=(
            "A custom Function's forward returns a view, an input as it is, or writes in place, and its jvp "
            "does not do the same with the tangent; torch's forward mode needs both to match."
        ),
        causes=(
            "the forward returns a view and the jvp a new tensor",
            "mark_dirty without an in-place jvp",
        ),
        remedy=("Return a view of the tangent where the output is a view, and write in place where the forward does."),
        wrong="def jvp(ctx, t): return t.t().clone()  # forward returns x.t()",
        right="def jvp(ctx, t): return t.t()",
    ),
}
