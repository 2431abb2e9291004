"""Cases of our own of the same kinds as the open ones, in other shapes, layouts, modes and orders."""

import itertools
import math

import torch
import torch.nn.functional as F
from case import Suite
from open_cases import (
    FORWARD,
    FORWARD_ONLY,
    at,
    c128,
    cplx,
    drifting,
    f32,
    f64,
    hooked,
    jittery,
    leaf,
    mkldnn,
    op,
    real,
    refuse,
    slicing,
    sparse,
)

CASES = Suite()
add = CASES.add
MISMATCH = dict(expect="fail", kind="jacobian_mismatch_backward", where=(0, 0))
KINK = dict(expect="fail", kind="nondifferentiable_point", also=("jacobian_mismatch_backward",))
INFINITE = float("-inf")


class OwnError(Exception):
    """An error that only user code knows."""


# ---- numerics: the step is ill chosen, and yet a right gradient passes and a wrong one does not ----

add("numerics/offset_and_wrong_factor", op(lambda x: x + 1e10, lambda x, g: 2 * g), lambda: (real(3),), **MISMATCH)
add("numerics/offset_and_no_gradient", op(lambda x: x + 1e10, lambda x, g: None), lambda: (real(3),), **MISMATCH)
add("numerics/offset_and_one_percent_off", op(lambda x: x + 1e9, lambda x, g: 1.01 * g), lambda: (real(3),), **MISMATCH)
add("numerics/offset_complex", lambda z: 1j * z + 1e10, lambda: (cplx(3),), **FORWARD)
add("numerics/log_near_zero_one_percent_off", op(torch.log, lambda x, g: 1.01 * g / x), lambda: (at([1e-7]),), **MISMATCH)
add("numerics/log_of_minute_numbers", torch.log, lambda: (at([1e-20, 3e-15]),), **FORWARD)
add("numerics/acosh_beside_its_edge", torch.acosh, lambda: (at([1 + 1e-7, 1 + 1e-9]),), **FORWARD)
add("numerics/asin_beside_its_edge", torch.asin, lambda: (at([1 - 1e-8]),))
add("numerics/fast_oscillation", lambda x: torch.sin(1e5 * x), lambda: (real(3),), **FORWARD)
add("numerics/square_of_large_numbers", lambda x: x * x, lambda: (at([1e9, -3e10]),), **FORWARD)
add("numerics/kink_within_a_step", torch.relu, lambda: (at([5e-7, -5e-7, 1.0]),))
add("numerics/kink_within_a_step_and_no_gradient", op(torch.relu, lambda x, g: 0 * g), lambda: (at([5e-7]),), **MISMATCH)
add("numerics/near_tie_within_a_step", lambda x: x.sort()[0], lambda: (at([1, 1 + 5e-7, 2]),))
add("numerics/infinite_constant_entries",
    lambda x: x.masked_fill(torch.tensor([True, False, False]), INFINITE), lambda: (real(3),), **FORWARD)
add("numerics/masked_softmax",
    lambda x: x.masked_fill(torch.tensor([True, False, False]), INFINITE).softmax(0), lambda: (real(3),), **FORWARD)
add("numerics/infinite_input_entry", lambda x: x.softmax(0), lambda: (at([INFINITE, 0.2, 0.7]),))
add("numerics/nan_gradient_of_the_other_branch", lambda x: torch.where(x > 0, x.sqrt(), 0 * x),
    lambda: (at([-1.0, 1.0]),), **MISMATCH)
add("numerics/step_lost_in_rounding", torch.sin, lambda: (real(3),), eps=1e-14)
add("numerics/step_of_one", torch.sin, lambda: (real(3),), eps=1.0)
add("numerics/no_tolerance", lambda x: x ** 3, lambda: (real(3),), rtol=0.0, atol=0.0)
add("numerics/root_at_zero", torch.sqrt, lambda: (at([0.0]),), **KINK)
add("numerics/relu_at_its_kink", torch.relu, lambda: (at([0.0]),), **KINK)
add("numerics/sign_at_its_jump", torch.sign, lambda: (at([0.0]),), **KINK)
add("numerics/floor_at_its_jump", torch.floor, lambda: (at([2.0]),), **KINK)
add("numerics/clamp_to_one_value", lambda x: x.clamp(1, 1), lambda: (at([1.0]),), **KINK)
add("numerics/max_pool_of_ties", lambda x: F.max_pool1d(x, 2), lambda: (leaf(torch.ones(1, 1, 4, dtype=f64)),), **KINK)
add("numerics/single_precision_inside_five_percent_off",
    op(lambda x: x.float().sin().double(), lambda x, g: 1.05 * g * x.cos()), lambda: (real(3),), **MISMATCH)
add("numerics/single_precision_inside_no_gradient",
    op(lambda x: x.float().sin().double(), lambda x, g: None), lambda: (real(3),), **MISMATCH)
add("numerics/single_precision_five_percent_off", op(torch.sin, lambda x, g: 1.05 * g * x.cos()),
    lambda: (real(3, dtype=f32),), **MISMATCH, warns="not a double")
add("numerics/raises_beyond_its_edge", lambda x: refuse(ValueError) if (x < 0).any() else x.sqrt(),
    lambda: (at([2e-7]),))
add("numerics/raises_off_the_point", lambda x: refuse(ValueError) if (x != 0.5).any() else x * 2,
    lambda: (at([0.5]),), "fail", "user_error_in_forward", raises="ValueError")
add("numerics/one_wrong_entry_of_many", op(lambda x: x.sin(), lambda x, g: g * x.cos() * (1 + (x == x[7]) * 0.01)),
    lambda: (real(80),), **MISMATCH)
add("numerics/one_wrong_entry_complex",
    op(lambda z: z * 2, lambda z, g: torch.complex(2 * g.real, 2 * g.imag * (1 + (torch.arange(40) == 5)))),
    lambda: (cplx(40),), **MISMATCH)
add("numerics/columns_that_cancel_in_a_sum", op(lambda x: x.sum(), lambda x, g: g * (1 + torch.tensor([1.0, -1.0] * 30))),
    lambda: (real(60),), **MISMATCH)
add("numerics/wide_right_one", lambda x, w: torch.tanh(x @ w), lambda: (real(6, 7), real(7, 5, seed=1)), **FORWARD)
add("numerics/wide_wrong_jvp", op(torch.sin, lambda x, g: g * x.cos(), lambda x, t: t * x.cos() + 1e-2 * t.flip(0)),
    lambda: (real(50),), "fail", "jacobian_mismatch_forward", where=(0, 0), **FORWARD)

# ---- memory and identity of inputs ----


def parts_of_one_complex_tensor():
    pairs = torch.view_as_real(cplx(3, grad=False))
    return leaf(pairs[..., 0]), leaf(pairs[..., 1])


def with_unchecked_alias():
    x = real(3)
    return x, x.detach()


def with_view():
    x = real(3)
    return x, x.view(3, 1)


def twin():
    x = real(3)
    return x, leaf(x)


OVERLAP = dict(expect="bad-input", kind="overlapping_memory", raises="RuntimeError")
add("memory/same_tensor_twice_all_checks", torch.mul, lambda: (real(3),) * 2, check_batched_grad=True, **FORWARD)
add("memory/same_tensor_twice_second", torch.mul, lambda: (real(3),) * 2, order=2, check_fwd_over_rev=True)
add("memory/same_mkldnn_twice", lambda a, b: a.to_dense() * b.to_dense(), lambda: (mkldnn(3),) * 2, atol=0.1,
    needs="mkldnn")
add("memory/same_compressed_twice", lambda a, b: a.to_dense(masked_grad=False) * b.to_dense(masked_grad=False),
    lambda: (sparse("csr"),) * 2)
add("memory/interleaved_parts", torch.mul, parts_of_one_complex_tensor, **FORWARD)
add("memory/unchecked_alias", torch.mul, with_unchecked_alias, **FORWARD)
add("memory/base_and_view", lambda a, b: a * b.squeeze(), with_view, **OVERLAP)
add("memory/two_leaves_one_memory", torch.mul, twin, **OVERLAP)
add("memory/expanded_values_of_sparse", lambda s: s.to_dense(masked_grad=False),
    lambda: (torch.sparse_coo_tensor([[0, 1]], real(1, grad=False).expand(2), (2,)).requires_grad_(),), **OVERLAP)
add("memory/expanded_second_order", lambda x: x * x, lambda: (real(1).expand(3),), **OVERLAP, order=2)
CAPTURED, CAPTURED_SPARSE = real(4, seed=9), sparse("coo", holes=True, seed=3)
add("memory/captured_by_closure", lambda _: CAPTURED.sin(), lambda: (CAPTURED,))
add("memory/captured_by_closure_second", lambda _: CAPTURED.sin(), lambda: (CAPTURED,), order=2)
add("memory/captured_by_closure_wrong", lambda _: op(torch.sin, lambda x, g: g)(CAPTURED), lambda: (CAPTURED,), **MISMATCH)
add("memory/captured_sparse", lambda _: CAPTURED_SPARSE.to_dense(), lambda: (CAPTURED_SPARSE,), masked=True)

# ---- sparse: every layout, with and without holes, real and complex ----

UNMASKED = dict(expect="fail", kind="jacobian_mismatch_backward", where=(0, 0))
for layout in ("coo", "csr", "csc", "bsr", "bsc"):
    for dtype in (f64, c128):
        for holes in (False, True):
            name = f"sparse/{layout}_{'complex' if dtype is c128 else 'real'}_{'holes' if holes else 'full'}"

            def build(layout=layout, dtype=dtype, holes=holes):
                return (sparse(layout, holes, dtype),)

            add(f"{name}_masked", lambda s: s.to_dense(), build, masked=True)
            add(f"{name}_unmasked", lambda s: s.to_dense(masked_grad=False), build)
            add(f"{name}_wrong_masked", lambda s: op(torch.sin, lambda d, g: g)(s.to_dense()), build, **MISMATCH,
                masked=True)
            add(f"{name}_forward", lambda s: s.to_dense(), build, "bad-input", "sparse_forward_ad", raises="Exception",
                masked=True, **FORWARD)
            if holes:
                add(f"{name}_masked_grad_unmasked", lambda s: s.to_dense(), build, **UNMASKED)


def hybrid():
    return (torch.sparse_coo_tensor([[1, 2]], real(2, 2, grad=False), (3, 2)).requires_grad_(),)


def without_entries():
    nothing = torch.zeros(1, 0, dtype=torch.long), torch.zeros(0, dtype=f64)
    return (torch.sparse_coo_tensor(*nothing, (3,)).requires_grad_(),)


add("sparse/hybrid_masked", lambda s: s.to_dense(), hybrid, masked=True)
add("sparse/hybrid_unspecified_ignored", lambda s: 2 * s.to_dense(masked_grad=False), hybrid, masked=True)
add("sparse/no_entries_masked", lambda s: s.to_dense(), without_entries, masked=True)
add("sparse/no_entries_unmasked", lambda s: s.to_dense(masked_grad=False), without_entries)
add("sparse/second_order", lambda s: s.to_dense() ** 2, lambda: (sparse("coo"),), "bad-input", "sparse_output", order=2,
    masked=True)
add("sparse/grad_of_another_sparse_layout", lambda x: hooked(x * 1, lambda g: g.to_sparse()), lambda: (real(2, 2),),
    "fail", "wrong_grad_layout", raises="RuntimeError")
add("mkldnn/second_order", lambda m: 2 * m.to_dense(), lambda: (mkldnn(3),), "bad-input", "mkldnn_output", order=2,
    atol=0.3, needs="mkldnn", check_undefined_grad=False)
add("mkldnn/forward_beside_backward", lambda m: 2 * m.to_dense(), lambda: (mkldnn(3),), "bad-input",
    "mkldnn_forward_ad", atol=0.3, needs="mkldnn", **FORWARD)

# ---- errors at every stage ----

OWN = dict(expect="fail", raises="OwnError")
add("errors/own_in_forward", lambda x: refuse(OwnError), lambda: (real(2),), kind="user_error_in_forward", **OWN)
add("errors/own_in_backward", op(torch.sin, lambda x, g: refuse(OwnError)), lambda: (real(2),),
    kind="user_error_in_backward", **OWN)
add("errors/own_in_jvp", op(torch.sin, None, lambda x, t: refuse(OwnError)), lambda: (real(2),),
    kind="user_error_in_jvp", **OWN, **FORWARD_ONLY)
add("errors/own_in_forward_second", lambda x: refuse(OwnError), lambda: (real(2),), kind="user_error_in_forward", **OWN,
    order=2)
add("errors/own_in_backward_second", op(torch.sin, lambda x, g: refuse(OwnError)), lambda: (real(2),),
    kind="user_error_in_backward", **OWN, order=2)
add("errors/own_in_second_backward", op(torch.sin, op(lambda x, g: g * x.cos(), lambda x, g, h: refuse(OwnError))),
    lambda: (real(2),), kind="user_error_in_backward", **OWN, order=2)


def own_error_for_batches(x, g):
    try:
        g.sum().item()
    except RuntimeError as error:
        raise OwnError from error
    return g * x.cos()


add("errors/own_where_batched", op(torch.sin, own_error_for_batches), lambda: (real(2),), kind="batched_grad", **OWN,
    check_batched_grad=True)
add("errors/hook_changes_size", lambda x: hooked(x * 1, lambda g: g[:1]), lambda: (real(2),), "fail",
    "wrong_grad_size", raises="RuntimeError")
add("errors/hook_changes_dtype", lambda x: hooked(x * 1, lambda g: g.float()), lambda: (real(2),), "fail",
    "grad_dtype", raises="RuntimeError")
add("errors/one_grad_too_many", op(torch.mul, lambda x, y, g: (g * y, g * x, g)), lambda: (real(2), real(2, seed=1)),
    "fail", "wrong_grad_count", raises="RuntimeError")
add("errors/no_backward_second", op(torch.exp, None, lambda x, t: t * x.exp()), lambda: (real(2),), "fail",
    "missing_backward", raises="NotImplementedError", order=2)
add("errors/no_jvp_forward_over_reverse",
    op(lambda x: x ** 3, op(lambda x, g: 3 * g * x * x, lambda x, g, h: (6 * g * h * x, 3 * h * x * x))),
    lambda: (real(2),), "fail", "missing_jvp", raises="NotImplementedError", order=2, check_fwd_over_rev=True)
add("errors/backward_through_numpy_second",
    op(lambda x: x ** 3, lambda x, g: torch.from_numpy(3 * g.detach().numpy() * x.detach().numpy() ** 2)),
    lambda: (real(2),), "fail", "no_diff_outputs_nonzero", also=("not_twice_differentiable",), order=2)
add("errors/backward_refused_by_numpy_second",
    op(lambda x: x ** 3, lambda x, g: torch.from_numpy(3 * g.numpy() * x.detach().numpy() ** 2)), lambda: (real(2),),
    "fail", "not_twice_differentiable", raises="RuntimeError", order=2)
ALSO = dict(expect="fail", kind="input_mutated")
add("errors/input_changed_after_use", lambda x: (3 * x, x.data.add_(1))[0], lambda: (real(3),), **ALSO)
add("errors/input_given_other_data", lambda x: (setattr(x, "data", x.data * 2), 3 * x)[1], lambda: (real(3),), **ALSO)
add("errors/unchecked_input_changed", lambda x, b: (x * b, b.add_(1))[0], lambda: (real(3), real(3, grad=False)), **ALSO)
add("errors/running_statistics_changed", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, training=True),
    lambda: (real(4, 3), torch.zeros(3, dtype=f64), torch.ones(3, dtype=f64), real(3), real(3, seed=1)), **FORWARD,
    note="state that the outputs do not depend on")

# ---- linearity ----

CROOKED = dict(expect="fail", kind="nonlinear_backward")
add("scaling/square", op(lambda x: 2 * x, lambda x, g: 2 * g * g), lambda: (real(3),), **CROOKED)
add("scaling/normalised", op(lambda x: x * 1, lambda x, g: g / g.norm().clamp(min=1e-9)), lambda: (real(3),), **CROOKED)
add("scaling/small_ones_dropped", op(lambda x: x * 1, lambda x, g: g * (g.abs() > 1e-3)), lambda: (real(3),), **CROOKED)
add("scaling/clipped_far_out", op(lambda x: x * 1, lambda x, g: g.clamp(-1e4, 1e4)), lambda: (real(3),), **CROOKED)
add("scaling/real_part_rectified", op(lambda z: z * 1, lambda z, g: torch.complex(g.real.abs(), g.imag)),
    lambda: (cplx(3),), **CROOKED)
add("scaling/second_of_two_inputs", op(torch.mul, lambda x, y, g: (g * y, g.abs() * x)),
    lambda: (real(3, lo=1e6, hi=2e6), real(3, seed=1, lo=1e-6, hi=2e-6)), **CROOKED)
add("scaling/outputs_multiplied", op(lambda x: (2 * x, 3 * x), lambda x, g, h: 2 * g + 3 * h + g * h),
    lambda: (real(3),), **CROOKED)
add("scaling/second_order", op(lambda x: x ** 3, op(lambda x, g: 3 * g * x * x,
    lambda x, g, h: (6 * g * h.abs() * x, 3 * h * x * x))), lambda: (real(3),), **CROOKED, order=2)
BENT = dict(expect="fail", kind="nonlinear_jvp")
add("scaling/jvp_modulus", op(lambda x: 2 * x, lambda x, g: 2 * g, lambda x, t: 2 * t.abs()), lambda: (real(3),), **BENT,
    **FORWARD)
add("scaling/jvp_clipped", op(lambda x: 2 * x, None, lambda x, t: 2 * t.clamp(-1, 1)), lambda: (real(3),), **BENT,
    **FORWARD_ONLY)
add("scaling/jvp_truncated", op(lambda x: 2 * x, None, lambda x, t: (2 * t).trunc()), lambda: (real(3),), **BENT,
    **FORWARD_ONLY)
add("scaling/jvp_complex", op(lambda z: 2 * z, None, lambda z, t: 2 * torch.complex(t.real.relu(), t.imag)),
    lambda: (cplx(3),), **BENT, **FORWARD_ONLY)
add("scaling/jvp_inputs_multiplied", op(torch.add, None, lambda x, y, s, t: s + t + s * t),
    lambda: (real(3), real(3, seed=1)), **BENT, **FORWARD_ONLY)
add("scaling/derivative_zero_up_to_rounding", lambda x: F.layer_norm(x, (1,)), lambda: (real(1),), **FORWARD)
add("scaling/drift_tolerated", drifting(1e-4), lambda: (real(3),), nondet_tol=1.0, atol=1.0)
add("scaling/jitter_tolerated", jittery(1e-3), lambda: (real(3),), nondet_tol=1e-2, atol=1e-2)
add("scaling/half_precision", lambda x: 2 * x, lambda: (at([1.0, 0.5], torch.float16),), eps=0.125, atol=0.2,
    kind="double_precision_warning", warns="not a double")

# ---- nondeterminism ----


def noise(size):
    return size * torch.rand((), dtype=f64)


FAINT = itertools.cycle((0.0, 1e-11))
"""Drawn noise of that size would be too small for a call in ten."""


class NotANumberLater:
    """The identity until its fourth call."""

    calls = 0

    def __call__(self, x, g):
        self.calls += 1
        return g * math.nan if self.calls > 3 else g


RANDOM = dict(expect="fail", kind="nondeterministic")
add("nondet/grad_of_second_input", op(torch.mul, lambda x, y, g: (g * y, g * x * (1 + noise(1e-9)))),
    lambda: (real(3), real(3, seed=1)), **RANDOM)
add("nondet/many_outputs", op(torch.sin, lambda x, g: g * x.cos() * (1 + noise(1e-9))), lambda: (real(50),), **RANDOM)
add("nondet/large_jvp_jitter", op(torch.sin, None, lambda x, t: t * x.cos() * (1 + noise(1))), lambda: (real(3),),
    **RANDOM, also=("jacobian_mismatch_forward",), **FORWARD_ONLY)
add("nondet/jvp_jitter_tolerated", op(torch.sin, None, lambda x, t: t * x.cos() * (1 + noise(1e-9))), lambda: (real(3),),
    nondet_tol=1e-6, **FORWARD_ONLY)
add("nondet/jvp_jitter_beside_backward",
    op(torch.sin, lambda x, g: g * x.cos(), lambda x, t: t * x.cos() * (1 + noise(1e-8))), lambda: (real(3),), **RANDOM,
    **FORWARD)
add("nondet/not_a_number_later", op(lambda x: x * 1, NotANumberLater()), lambda: (real(3),), **RANDOM,
    also=("jacobian_mismatch_backward", "backward_not_mul_by_grad_output"))
add("nondet/random_factor_second", lambda x: x * x * noise(1), lambda: (real(3),), **RANDOM,
    also=("nondeterministic_forward", "jacobian_mismatch_backward"), order=2)
add("nondet/faint_forward_noise", lambda x: x * x + next(FAINT), lambda: (real(3),), "fail",
    "nondeterministic_forward", torch_says="pass", note="no difference is tolerated unless nondet_tol says so")
add("nondet/forward_noise_tolerated", lambda x: x * x + noise(1e-9), lambda: (real(3),), nondet_tol=1e-6)
add("nondet/complex_dropout", lambda z: z * (torch.rand(30) > 0.5), lambda: (cplx(30),), "fail",
    "nondeterministic_forward", also=("jacobian_mismatch_backward",))

# ---- undefined grads and tangents ----

add("undefined/both_needed", op(lambda x: (2 * x, 3 * x), lambda x, g, h:
    2 * g + 3 * h if g is not None and h is not None else torch.ones_like(x), materialize=False), lambda: (real(3),),
    "fail", "jacobian_mismatch_backward", also=("undefined_grad",))
add("undefined/tangent_multiplied", op(torch.mul, lambda x, y, g: (None, None) if g is None else (g * y, g * x),
    lambda x, y, s, t: s * y + t * x, materialize=False), lambda: (real(3), real(3, seed=1)), "fail",
    "undefined_tangent", raises="TypeError", **FORWARD)
add("undefined/tangent_multiplied_unasked", op(torch.mul, lambda x, y, g: (g * y, g * x),
    lambda x, y, s, t: s * y + t * x, materialize=False), lambda: (real(3), real(3, seed=1)), **FORWARD,
    check_undefined_grad=False)
add("undefined/complex_tangent_taken_for_ones", op(torch.mul, None,
    lambda x, y, s, t: (0 if s is None else s * y) + (x if t is None else t * x), materialize=False),
    lambda: (cplx(3), cplx(3, seed=1)), "fail", "undefined_tangent", **FORWARD_ONLY)
add("undefined/second_order", op(torch.sin, op(lambda x, g: g * x.cos(), lambda x, g, h:
    (torch.ones_like(x), h) if h is None else (-g * h * x.sin(), h * x.cos()), materialize=False)), lambda: (real(3),),
    "fail", "undefined_grad", order=2, warns="undefined gradient support")

# ---- outputs and inputs ----

NO_TENSOR = dict(expect="bad-input", kind="non_tensor_output", raises="Exception")
add("outputs/python_number", lambda x: float(x.sum()), lambda: (real(3),), **NO_TENSOR)
add("outputs/nested_tuple", lambda x: ((x * 2,),), lambda: (real(3),), **NO_TENSOR)
add("outputs/none_second_order", lambda x: (x * 2, None), lambda: (real(3),), **NO_TENSOR, order=2)
VARIES = dict(expect="fail", kind="no_diff_outputs_nonzero")
add("undifferentiable/second_order", lambda x: x.detach() * 2, lambda: (real(3),), **VARIES, order=2)
add("undifferentiable/faint_slope", lambda x: 1e-9 * x.detach(), lambda: (real(4),), **VARIES)
add("undifferentiable/slope_beside_offset", lambda x: 1e-3 * x.detach() + 1e6, lambda: (real(4),), **VARIES)
add("undifferentiable/many_entries", lambda x: x.detach().sin(), lambda: (real(60),), **VARIES)
add("undifferentiable/complex", lambda z: z.detach() * 2, lambda: (cplx(3),), **VARIES)
add("undifferentiable/forward_alone", lambda x: x.detach() * 2, lambda: (real(3),), **VARIES, **FORWARD_ONLY)
add("undifferentiable/zero_up_to_rounding", lambda x: (x.sin() ** 2 + x.cos() ** 2 - 1).detach(), lambda: (real(40),))
add("undifferentiable/large_up_to_rounding", lambda x: (1e6 * (x.sin() ** 2 + x.cos() ** 2)).detach(),
    lambda: (real(40),))
add("undifferentiable/no_grad_and_wrong_jvp", torch.no_grad()(op(torch.sin, None, lambda x, t: t)), lambda: (real(3),),
    "fail", "jacobian_mismatch_forward", where=(0, 0), **FORWARD_ONLY)
add("undifferentiable/sparse_beside", lambda x: (x * 2, torch.eye(2).to_sparse()), lambda: (real(3),))
add("outputs/all_checks_beside_integers", lambda x: (x * 2, x.argmax(), x > 0), lambda: (real(3),),
    check_batched_grad=True, check_batched_forward_grad=True, **FORWARD)
add("outputs/integer_before_complex", lambda z: (z.abs().argmax(), z * 1j, z.real), lambda: (cplx(3),), **FORWARD)
UNSTABLE = dict(expect="fail", kind="output_depends_on_perturbation", raises="AssertionError")
add("unstable/forward_alone", lambda x: x * x if x[0] > 3 else (x * x).view(1, -1), lambda: (at([3.0, 1.0]),),
    **UNSTABLE, **FORWARD_ONLY)
add("unstable/many_inputs", lambda x: x * x if x[0] > 3 else (x * x).view(1, -1), lambda: (at([3.0] * 40),), **UNSTABLE)
HIDDEN = dict(expect="bad-input", kind="nested_input")
add("inputs/dict_hides_checked_tensor", lambda x, d: x + d["a"], lambda: (real(3), {"a": real(3, seed=1)}), **HIDDEN)
add("inputs/tuple_hides_checked_tensor", lambda x, d: x + d[0], lambda: (real(3), (real(3, seed=1),)), **HIDDEN)
add("inputs/nested_second_order", lambda x, d: x * d[0], lambda: (real(3), [real(3, seed=1)]), **HIDDEN, order=2)
add("inputs/list_of_unchecked_tensors", lambda x, d: x + d[0], lambda: (real(3), [real(3, grad=False)]))
add("inputs/none_requires_grad_second", lambda x: x * x, lambda: (real(3, grad=False),), "bad-input",
    "inputs_no_requires_grad", order=2)
ADVICE = dict(kind="double_precision_warning", atol=0.1)
add("inputs/mixed_precision", torch.mul, lambda: (real(3), real(3, seed=1, dtype=f32)), **ADVICE, warns="Input #1")
add("inputs/single_precision_second", lambda x: x * x, lambda: (real(3, dtype=f32),), **ADVICE, warns="not a double",
    order=2)

# ---- numerics of second order, of complex numbers, and of gradients of very unlike sizes ----

add("numerics/log_near_zero_second", torch.log, lambda: (at([1e-7]),), order=2, check_fwd_over_rev=True)
add("numerics/offset_second", lambda x: x.sin() + 1e10, lambda: (real(3),), order=2)
add("numerics/cube_of_large_second", lambda x: x ** 3, lambda: (at([1e6]),), order=2)
add("numerics/log_near_zero_wrong_second", op(torch.log, op(lambda x, g: g / x,
    lambda x, g, h: (-1.02 * g * h / x ** 2, h / x))), lambda: (at([1e-7]),), **MISMATCH, order=2)
add("numerics/complex_log_near_zero", torch.log, lambda: (leaf(1e-7 * cplx(2)),), **FORWARD)
add("numerics/complex_root_near_zero", torch.sqrt, lambda: (leaf(1e-7 * cplx(2)),), **FORWARD)
add("numerics/complex_modulus_at_origin", torch.abs, lambda: (at([0.0], c128),))
add("numerics/single_precision_offset", lambda x: x * 2 + 1e4, lambda: (real(3, dtype=f32),), atol=0.1,
    kind="double_precision_warning", warns="not a double")
UNLIKE = torch.tensor([1e8] + [1.0] * 49, dtype=f64)
OFF = torch.tensor([1e8] + [1.0] * 48 + [1.1], dtype=f64)
add("numerics/small_input_beside_huge_one", op(lambda x, y: x * 1e8 + y, lambda x, y, g: (1e8 * g, 1.1 * g)),
    lambda: (real(20), real(20, seed=1)), "fail", "jacobian_mismatch_backward", where=(0, 1))
add("numerics/small_input_beside_huge_one_forward",
    op(lambda x, y: x * 1e8 + y, None, lambda x, y, s, t: 1e8 * s + 1.1 * t), lambda: (real(20), real(20, seed=1)),
    "fail", "jacobian_mismatch_forward", where=(0, 1), **FORWARD_ONLY)
add("numerics/small_row_beside_huge_one", op(lambda x: x * UNLIKE, lambda x, g: g * OFF), lambda: (real(50),), **MISMATCH)
add("numerics/small_column_beside_huge_one", op(lambda x: (x * UNLIKE).sum(), lambda x, g: g * OFF), lambda: (real(50),),
    **MISMATCH)
add("numerics/small_column_beside_huge_one_forward",
    op(lambda x: (x * UNLIKE).sum(), None, lambda x, t: (t * OFF).sum()), lambda: (real(50),), "fail",
    "jacobian_mismatch_forward", where=(0, 0), **FORWARD_ONLY)
add("numerics/nothing_times_nothing", torch.mm, lambda: (real(5, 0), real(0, 10)), **FORWARD)
add("numerics/nothing_times_nothing_second", torch.mm, lambda: (real(5, 0), real(0, 10)), order=2)

# ---- contracts, batches, in-place and aliased outputs ----


def jvp_returns(tangents):
    """2 x with the given jvp."""
    return op(lambda x: 2 * x, lambda x, g: 2 * g, tangents)


add("contracts/jvp_too_many", jvp_returns(lambda x, t: (2 * t, None)), lambda: (real(3),), "fail", "bad_jvp_contract",
    raises="RuntimeError", **FORWARD)
add("contracts/complex_view", slicing("view"), lambda: cplx(4, 3), **FORWARD)
add("contracts/complex_copy_for_view", slicing("copy"), lambda: cplx(4, 3), "fail", "bad_jvp_contract",
    raises="RuntimeError", **FORWARD)
add("contracts/complex_tangent_unasked", jvp_returns(lambda x, t: torch.complex(2 * t, 0 * t)), lambda: (real(2, 2),),
    **FORWARD)
add("batched/complex", lambda z: z.abs(), lambda: (cplx(3),), check_batched_grad=True)
add("batched/unused_input", lambda x, y: x * 2, lambda: (real(3), real(2)), check_batched_grad=True)
add("batched/into_plain_memory", op(lambda x: 2 * x, lambda x, g: torch.zeros(3, dtype=f64).copy_(g).mul_(2)),
    lambda: (real(3),), "fail", "batched_grad", check_batched_grad=True)
add("batched/second_order_forward", torch.sin, lambda: (real(3),), order=2, check_batched_grad=True,
    check_fwd_over_rev=True)
add("batched/empty", lambda x: x * 2, lambda: (real(0, 3),), check_batched_grad=True)
add("in_place/on_a_copy_of_another", lambda x, y: y.clone().mul_(x).add_(x), lambda: (real(3), real(3, seed=1)),
    check_batched_grad=True, **FORWARD)
add("in_place/into_new_memory", lambda x: torch.zeros(3, dtype=f64).copy_(x).exp_(), lambda: (real(3),), **FORWARD)
add("in_place/on_an_input_that_is_no_leaf", lambda x: x.mul_(2), lambda: (real(3) * 1,), "fail", "input_mutated",
    also=("user_error_in_forward", "user_error_in_backward"))
add("outputs/twice_the_same", lambda x: (x, x), lambda: (real(3),), **FORWARD)
add("outputs/whole_and_part", lambda x: (lambda y: (y, y[0]))(x * 2), lambda: (real(3),), check_batched_grad=True,
    **FORWARD)
add("outputs/of_something_else", lambda x: torch.nn.Parameter(torch.ones(2, dtype=f64)) * 1, lambda: (real(3),))
add("outputs/of_something_else_times_detached", lambda x: torch.nn.Parameter(torch.ones(3, dtype=f64)) * x.detach(),
    lambda: (real(3),), **MISMATCH)
add("outputs/nothing_second", lambda x: (), lambda: (real(3),), order=2)
add("outputs/of_inference_mode", torch.inference_mode()(lambda x: x * 2), lambda: (real(3),), **VARIES)
add("arguments/module", lambda x, m: m(x), lambda: (real(3, 4), torch.nn.Linear(4, 2).double()))
add("arguments/five_tensors", lambda *xs: sum(x.sin() for x in xs), lambda: tuple(real(2, seed=k) for k in range(5)),
    **FORWARD)
add("arguments/complex_number", lambda z: z * z, lambda: (at(1 + 2j, c128),), **FORWARD)
add("numerics/faint_beside_steep", lambda x, y: 1e9 * x ** 9 + 1e-2 * y, lambda: (real(3, lo=2, hi=3), real(3, seed=1)),
    torch_says="fail", note="right gradient; the faint one drowns in the rounding of the steep one at any step")
add("numerics/half_precision_inside_wrong", op(lambda x: (2 * x).half(), lambda x, g: 3 * g.double()), lambda: (real(3),),
    **MISMATCH)
