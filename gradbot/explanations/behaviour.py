"""Rules on determinism, linearity and batching: GB2xx and GB3xx."""

from __future__ import annotations

from collections.abc import Mapping

from gradbot.explanations.page import Explanation

BEHAVIOUR: Mapping[str, Explanation] = {
    "nondeterministic": Explanation(
        meaning=(
            "The same derivative of the same graph, computed several times, differs by more than "
            "nondet_tol. The report says by how much, in how many repeats, and between which rates that "
            "lies with 95% confidence. Differences of the last bits come from the order of additions; "
            "larger ones are races."
        ),
        causes=(
            "atomic additions on the GPU: index_add_, scatter_add_, bincount and kernels like them",
            "a race: a missing synchronisation, uninitialised memory read, overlapping writes",
            "random numbers drawn in the backward",
        ),
        remedy=(
            "For last-bit differences set nondet_tol for the target, or use deterministic algorithms. For "
            "larger ones look for uninitialised memory (torch.empty) and blocks that write to the same "
            "place."
        ),
        wrong="grad = torch.empty_like(x)  # rows that no index names stay uninitialised",
        right="grad = torch.zeros_like(x)",
    ),
    "nondeterministic_forward": Explanation(
        meaning=(
            "The function returns other values for the same inputs, also with the random number generators "
            "in the same state. A numerical derivative of it is noise."
        ),
        causes=(
            "state that changes from call to call: a counter, a cache, a running mean",
            "a race, or uninitialised memory",
            "random numbers from a generator that gradbot cannot see",
        ),
        remedy=('Draw from torch\'s own generators, pass state in as an argument, or declare `expect = "stochastic"`.'),
    ),
    "nonlinear_backward": Explanation(
        meaning=(
            "backward(a * g) is not a * backward(g). A vector-Jacobian product is linear in grad_output "
            "whatever the function is; every gradcheck that tries one scale only passes such a backward."
        ),
        causes=(
            "gradient clipping, normalisation or a threshold inside the backward",
            "grad_output multiplied twice, or used inside an exp, abs or sign",
        ),
        remedy="Multiply by grad_output exactly once; clip gradients in a hook or in the optimiser instead.",
        wrong="return grad_output.clamp(-1, 1) * slope",
        right="return grad_output * slope",
    ),
    "nonlinear_jvp": Explanation(
        meaning="jvp(a * t) is not a * jvp(t): a Jacobian-vector product is linear in its tangents.",
        causes=(
            "the tangent enters a nonlinear function",
            "the primal output is returned in place of its tangent",
        ),
        remedy="Return the derivative times the tangent, nothing else.",
        wrong="return torch.sin(tangent)",
        right="return torch.cos(x) * tangent",
    ),
    "batched_grad": Explanation(
        meaning=(
            "vmap over the backward raises, or gives another result than a loop over the same grad_outputs. "
            "torch.func.jacrev, per-sample gradients and torch.autograd.grad(is_grads_batched=True) go this "
            "way."
        ),
        causes=(
            "a custom vmap staticmethod that mixes up in_dims or returns wrong out_dims",
            (
                "a backward with .item(), data-dependent control flow, in-place writes into unbatched "
                "tensors or .data_ptr()"
            ),
            "view or reshape with sizes taken from the unbatched tensor",
        ),
        remedy=(
            "Set generate_vmap_rule = True where the methods are made of torch ops only; else write vmap so "
            "that it moves the batch dim of every argument that has one, and says where it is in every "
            "output."
        ),
        wrong="""
@staticmethod
def vmap(info, in_dims, x, y):
    return Mul.apply(x.movedim(in_dims[0], 0), y), 0  # y may be batched as well
""",
        right="""
@staticmethod
def vmap(info, in_dims, x, y):
    x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.unsqueeze(0)
    y = y.movedim(in_dims[1], 0) if in_dims[1] is not None else y.unsqueeze(0)
    return Mul.apply(x, y), 0
""",
    ),
    "batched_forward_grad": Explanation(
        meaning="vmap over the jvp raises, or gives another result than a loop: torch.func.jacfwd goes this way.",
        causes=(
            "the jvp uses in-place ops on tangents, or sizes of the unbatched tensor",
            "setup_context and generate_vmap_rule = True are missing",
        ),
        remedy="Use the setup_context form with generate_vmap_rule = True, and out-of-place ops in the jvp.",
    ),
}
