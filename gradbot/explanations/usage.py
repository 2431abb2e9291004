"""Rules on inputs and options, capabilities, errors of user code, registration and compilation: GB5xx to GB8xx."""

from __future__ import annotations

from collections.abc import Mapping

from gradbot.explanations.page import Explanation

USAGE: Mapping[str, Explanation] = {
    "output_depends_on_perturbation": Explanation(
        meaning=(
            "Number, shape or dtype of the outputs changes when the inputs move a little, so that no Jacobian exists."
        ),
        causes=(
            "nonzero, unique, boolean masks or top-k by threshold",
            "an output left out for some values",
        ),
        remedy="Check a function of fixed output shape: compose it with the reduction that follows in practice.",
    ),
    "inputs_no_requires_grad": Explanation(
        meaning="No input tensor requires grad, so that there is nothing to differentiate.",
        causes=(
            "requires_grad=True forgotten on the inputs",
            "integer inputs only",
        ),
        remedy="Mark the inputs whose gradient is to be checked.",
        wrong="gradbot.Sample(torch.randn(3, dtype=torch.float64))",
        right="gradbot.Sample(torch.randn(3, dtype=torch.float64, requires_grad=True))",
    ),
    "overlapping_memory": Explanation(
        meaning=(
            "A checked input shares memory with itself or with another one: a step in one entry would move "
            "several. `check` makes dense copies and says so; gradcheck refuses, as torch's does."
        ),
        causes=(
            "expand() used in place of repeat()",
            "two inputs that are views of one tensor",
        ),
        remedy="Pass clones.",
        wrong="x = torch.randn(1, 3).expand(4, 3)",
        right="x = torch.randn(1, 3).expand(4, 3).clone()",
    ),
    "nested_input": Explanation(
        meaning="A tensor that requires grad is inside a list amid the inputs, where gradcheck does not perturb it.",
        causes=("arguments that are lists or dicts of tensors",),
        remedy=("Use `gradbot.check`, which takes nested inputs, or pass the tensors as arguments of a small lambda."),
        right="gradcheck(lambda a, b: f([a, b]), (a, b))",
    ),
    "sparse_output": Explanation(
        meaning="An output is sparse; a numerical Jacobian needs a dense one.",
        causes=("the function returns a sparse tensor",),
        remedy="Check the composition with to_dense().",
        right="gradcheck(lambda x: f(x).to_dense(), (x,))",
    ),
    "mkldnn_output": Explanation(
        meaning="An output has mkldnn's opaque layout; a numerical Jacobian needs a dense one.",
        causes=("the function returns what mkldnn computed",),
        remedy="Check the composition with to_dense().",
    ),
    "mkldnn_forward_ad": Explanation(
        meaning="Forward mode was asked for and an input has mkldnn's layout, which forward mode does not support.",
        causes=("check_forward_ad=True with mkldnn inputs",),
        remedy="Leave forward mode out for these inputs.",
    ),
    "sparse_forward_ad": Explanation(
        meaning="Forward mode was asked for and an input is sparse, which forward mode does not support.",
        causes=("check_forward_ad=True with sparse inputs",),
        remedy="Leave forward mode out for these inputs.",
    ),
    "non_tensor_output": Explanation(
        meaning=(
            "An output is not a tensor. gradcheck takes functions of tensors to tensors only; `check` "
            "leaves others out."
        ),
        causes=("a function that returns a float, a string or None beside its tensors",),
        remedy="Return tensors only, or use `gradbot.check`.",
    ),
    "bad_flags": Explanation(
        meaning="The options contradict each other, such as check_undefined_grad without check_backward_ad.",
        causes=("flags copied from another call",),
        remedy="Take out one of the two that the message names.",
    ),
    "double_precision_warning": Explanation(
        meaning=(
            "A checked input is not of double precision: with the default step and tolerances most correct "
            "functions fail gradcheck in float32. `check` chooses step and tolerances by dtype instead."
        ),
        causes=("torch.randn(...) without dtype=torch.float64",),
        remedy="Use float64 inputs where the function takes them.",
        right="x = torch.randn(4, dtype=torch.float64, requires_grad=True)",
    ),
    "nondifferentiable_point": Explanation(
        meaning=("The inputs sit on a kink or a jump: the derivative does not exist there, and one-sided ones differ."),
        causes=("zeros into relu or abs, ties into max or sort, integers into floor",),
        remedy="Move the inputs off the point, or set `resample` so that gradbot may.",
        wrong="x = torch.zeros(4, dtype=torch.float64, requires_grad=True)",
        right="x = (torch.rand(4, dtype=torch.float64) + 0.1).requires_grad_()",
    ),
    "missing_jvp": Explanation(
        meaning="Forward mode was asked for and the custom Function has no jvp.",
        causes=("a Function written before forward mode, or for backward only",),
        remedy="Write a jvp, or leave forward mode out; `check` counts it as not supported.",
        right="""
@staticmethod
def jvp(ctx, tangent):
    return tangent * ctx.slope
""",
    ),
    "missing_backward": Explanation(
        meaning="The custom Function has no backward, or the op no registered derivative formula.",
        causes=(
            "the backward was never written",
            "register_autograd runs in a module that is not imported",
        ),
        remedy="Write the backward, or import the module that registers it.",
        right="torch.library.register_autograd('ns::op', backward, setup_context=setup_context)",
    ),
    "not_twice_differentiable": Explanation(
        meaning="The backward cannot be differentiated again: it is once_differentiable, detached or leaves torch.",
        causes=(
            "@once_differentiable",
            "NumPy or a kernel call inside the backward",
            "detach() on what is returned",
        ),
        remedy="Put the kernel of the backward into a Function of its own that has a backward, if it is needed.",
    ),
    "required_check_unsupported": Explanation(
        meaning="The configuration requires a check that the target does not support, so that it could not be made.",
        causes=("`require` names a derivative that the target does not offer yet",),
        remedy="Implement the derivative, or take the check out of `require` for this target.",
        right="""
# pyproject.toml
# [tool.gradbot.targets."kernels.*"]
# require = ["backward", "double_backward"]
""",
    ),
    "user_error_in_forward": Explanation(
        meaning="The function raised, with the inputs as they were given. Nothing is said of its derivatives.",
        causes=(
            "inputs that the function does not take: shape, dtype, device",
            "a missing file, library or device",
        ),
        remedy="Run the reproduction command; declare inputs that the function takes.",
    ),
    "user_error_in_backward": Explanation(
        meaning="The forward ran and the backward raised.",
        causes=(
            "a name, shape or dtype error on a path that no test takes",
            "ctx.saved_tensors unpacked into the wrong number of names",
            "needs_input_grad not looked at, so that a missing tensor is used",
        ),
        remedy="Run the reproduction command; the traceback's last lines name the line.",
    ),
    "user_error_in_jvp": Explanation(
        meaning="The forward ran and the jvp raised.",
        causes=(
            "save_for_forward was not called",
            "a None tangent used as a tensor",
        ),
        remedy="Save what the jvp needs with ctx.save_for_forward in setup_context or forward.",
    ),
    "registration_schema": Explanation(
        meaning="The op writes into an argument or returns an alias of one, and its schema does not say so.",
        causes=(
            "mutates_args left empty for an in-place kernel",
            "the op returns its input as it is",
        ),
        remedy="Name the arguments in mutates_args, and return clones rather than inputs.",
        wrong="""
@torch.library.custom_op("ns::scale_", mutates_args=())
def scale_(x: Tensor, k: float) -> None:
    x.mul_(k)
""",
        right="""
@torch.library.custom_op("ns::scale_", mutates_args={"x"})
def scale_(x: Tensor, k: float) -> None:
    x.mul_(k)
""",
    ),
    "registration_autograd": Explanation(
        meaning="Autograd is registered below the key where torch.library expects it: torch.compile bypasses it.",
        causes=(
            "a kernel for CPU or CUDA that calls an autograd.Function",
            "no register_autograd at all",
        ),
        remedy="Register the formula with torch.library.register_autograd, and make the device kernels plain.",
    ),
    "registration_fake": Explanation(
        meaning=(
            "The fake kernel gives outputs of another shape, dtype, stride or device than the real one, or raises."
        ),
        causes=(
            "a broadcast, a keepdim or a contiguous() that the fake kernel does not mirror",
            "no fake kernel",
        ),
        remedy="Return torch.empty of exactly the real output's shape, dtype and strides.",
        wrong="return torch.empty_like(x)  # the op returns x.sum(-1)",
        right="return x.new_empty(x.shape[:-1])",
    ),
    "registration_aot_dispatch": Explanation(
        meaning="Outputs or gradients under torch.compile's tracing differ from eager ones, or tracing raises.",
        causes=(
            "data-dependent Python inside the backward",
            "a fake kernel that lies about shapes",
            "hidden state",
        ),
        remedy="Keep forward and backward free of .item(), data pointers and global state; see GB803 first.",
    ),
    "compiled_mismatch": Explanation(
        meaning="Gradients of the function under torch.compile differ from eager ones by more than the tolerances.",
        causes=(
            "a custom op whose fake kernel or schema is wrong",
            "aliasing or mutation that tracing cannot see",
        ),
        remedy="Run the registration checks for the ops inside; they name the contract that is broken.",
    ),
}
