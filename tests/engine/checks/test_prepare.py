"""Which tensors are checked, however they are handed over, and how a function must be called to be measured."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from engine.checks.wrong import assert_passes, kinds, real, result_of, rule, run
from torch import Tensor

from gradbot.engine.api import check
from gradbot.engine.prepare import prepare
from gradbot.engine.trees import leaves, map_leaves
from gradbot.model import CaseResult, Outcome


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Box:
    content: Any
    label: str = "box"


def names_of(case: CaseResult) -> list[str]:
    return [each.name for each in case.inputs]


NESTED: list[tuple[str, Callable[[], tuple[Any, ...]], Callable[..., Any], list[str]]] = [
    ("list", lambda: ([real(2), real(2, seed=1)],), lambda xs: xs[0] * xs[1], ["xs[0]", "xs[1]"]),
    ("dict", lambda: ({"w": real(2), "n": 3},), lambda xs: xs["w"] ** xs["n"], ["xs['w']"]),
    ("namedtuple", lambda: (Pair(real(2), None),), lambda xs: xs.first.sin(), ["xs.first"]),
    ("dataclass", lambda: (Box(real(2)),), lambda xs: xs.content.sin(), ["xs.content"]),
    ("deep", lambda: ([{"a": (Box(real(2)),)}],), lambda xs: xs[0]["a"][0].content.cos(), ["xs[0]['a'][0].content"]),
    ("none and numbers", lambda: (real(2), None, 2.5, "x"), lambda x, *rest: x * rest[1], ["x"]),
    ("integers beside", lambda: (real(4), torch.tensor([0, 2])), lambda x, index: x[index], ["x"]),
]


@pytest.mark.parametrize(("inputs", "func", "names"), [each[1:] for each in NESTED], ids=[each[0] for each in NESTED])
def test_nested_arguments_are_checked_by_name(inputs: Any, func: Any, names: list[str]) -> None:
    case = check(func, inputs())
    assert case.outcome is Outcome.PASSED, case
    assert names_of(case) == names


@pytest.mark.parametrize("wrap", [lambda y: [y], lambda y: {"y": y, "n": 1}, lambda y: Pair(None, y), Box])
def test_nested_outputs_are_checked(wrap: Callable[[Any], Any]) -> None:
    wrong = rule(torch.sin, lambda ctx, x, g: 2 * g * x.cos())
    assert run("backward", lambda x: wrap(x.sin()), real(3)).outcome is Outcome.PASSED
    assert run("backward", lambda x: wrap(wrong.apply(x)), real(3)).outcome is Outcome.FAILED


def test_outputs_that_are_not_differentiable_keep_their_places_empty() -> None:
    wrong = rule(torch.sin, lambda ctx, x, g: 2 * g * x.cos())

    def mixed(x: Tensor) -> Any:
        return x.detach().floor(), x.argmax(), None, 3, x.cos(), wrong.apply(x), x > 0

    (finding,) = run("backward", mixed, real(3)).findings
    assert (finding.output, finding.output_name) == (1, "output 5")


def test_keyword_arguments_are_checked() -> None:
    case = check(lambda x, *, scale: x * scale, (real(2),), {"scale": real(2, seed=1)})
    assert (case.outcome, names_of(case)) == (Outcome.PASSED, ["x", "scale"])


def test_names_of_a_function_are_those_of_its_forward() -> None:
    case = check(rule(torch.mul, lambda ctx, x, y, g: (g * y, g * x)).apply, (real(2), real(2, seed=1)))
    assert len(names_of(case)) == 2

    class Named(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, weight: Tensor, bias: Tensor) -> Tensor:
            return weight + bias

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            return g, g

    assert names_of(check(Named.apply, (real(2), real(2, seed=1)))) == ["weight", "bias"]


def test_parameters_of_modules_are_checked() -> None:
    class Wrong(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor([1.5, 0.5], dtype=torch.float64))
            self.frozen = torch.nn.Parameter(torch.ones(2, dtype=torch.float64), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return rule(torch.mul, lambda ctx, x, y, g: (g * y, 3 * g * x)).apply(x, self.scale) * self.frozen

    case = check(Wrong(), (real(2),))
    assert names_of(case) == ["input 0", "scale"] or names_of(case) == ["x", "scale"]
    assert [each.input_name for each in result_of(case, "backward").findings] == ["scale"]


def test_tied_parameters_are_one_input() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Linear(2, 2, bias=False).double()
            self.b = self.a

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x).sin())

    case = check(Tied(), (real(3, 2),))
    assert (case.outcome, names_of(case)[1:]) == (Outcome.PASSED, ["a.weight"])


@pytest.mark.parametrize("module", [torch.nn.LSTM(2, 3).double(), torch.nn.MultiheadAttention(4, 2).double()])
def test_modules_of_torch_pass_with_their_parameters(module: torch.nn.Module) -> None:
    arguments = (real(2, 1, 2),) if isinstance(module, torch.nn.LSTM) else (real(2, 1, 4),) * 3
    case = check(module, arguments, checks=["backward", "needs_input_grad"])
    assert case.outcome is Outcome.PASSED
    assert len(case.inputs) == 1 + len(list(module.parameters()))


def test_bound_methods_partials_and_modules_among_the_arguments_bring_their_parameters() -> None:
    linear = torch.nn.Linear(2, 2).double()
    for func, inputs in (
        (linear.forward, (real(3, 2),)),
        (functools.partial(linear), (real(3, 2),)),
        (lambda layer, x: layer(x), (linear, real(3, 2))),
    ):
        case = check(func, inputs, checks=["backward"])
        assert "weight" in names_of(case)
        assert case.outcome is Outcome.PASSED


def test_one_tensor_in_two_places_is_one_input() -> None:
    x = real(3)
    case = check(torch.mul, (x, x))
    assert (case.outcome, len(case.inputs)) == (Outcome.PASSED, 1)


def test_without_any_that_requires_grad_every_one_is_checked_and_that_is_said() -> None:
    case = check(torch.mul, (real(2).detach(), real(2, seed=1).detach()))
    assert (case.outcome, len(case.inputs)) == (Outcome.PASSED, 2)
    assert [each.code for each in case.notes] == ["requires_grad_assumed"]


def test_overlapping_inputs_are_densified_and_that_is_said() -> None:
    x = torch.ones((), dtype=torch.float64).expand(3).requires_grad_()
    case = check(torch.sin, (x,))
    assert case.outcome is Outcome.PASSED
    assert [(each.code, each.details["input"]) for each in case.notes] == [("densified", 0)]


def test_inputs_that_are_no_leaves_are_checked() -> None:
    assert check(torch.sin, (real(3) * 2,)).outcome is Outcome.PASSED


def test_random_functions_are_replayed_and_that_is_said() -> None:
    case = check(torch.nn.functional.dropout, (real(9),))
    assert case.outcome is Outcome.PASSED
    assert [each.code for each in case.notes] == ["random_replayed"]


@pytest.mark.parametrize(
    "func", [lambda x: x.mul_(2).sin(), lambda x: torch.relu_(x - 1), lambda x: x[:1].mul_(3) + x.sum()]
)
def test_in_place_functions_get_copies(func: Callable[..., Any]) -> None:
    x = real(3)
    before = x.detach().clone()
    assert check(func, (x,)).outcome is Outcome.PASSED
    assert torch.equal(x.detach(), before)


def test_inputs_read_by_closure_are_measured_in_place() -> None:
    x = real(3)
    case = check(lambda _: x.sin(), (x,))
    assert result_of(case, "backward").outcome is Outcome.PASSED
    assert [each.code for each in case.notes] == ["captured_inputs"]
    wrong = rule(torch.sin, lambda ctx, x, g: 2 * g * x.cos())
    assert result_of(check(lambda _: wrong.apply(x), (x,)), "backward").outcome is Outcome.FAILED


def test_functions_of_larger_memory_are_measured_in_place() -> None:
    whole = torch.arange(1.0, 9.0, dtype=torch.float64)
    part = whole[4:].detach().requires_grad_()
    assert run("backward", lambda x: x.as_strided((4,), (1,), 4), part).outcome is Outcome.PASSED


def test_functions_that_read_memory_around_their_inputs_are_measured_in_place() -> None:
    whole = torch.arange(1.0, 21.0, dtype=torch.float64)
    part = whole[10:].detach().requires_grad_()
    case = check(lambda x: x.as_strided((2, 2), (1, 2), 0) ** 2, (part,))
    assert case.outcome is not Outcome.FAILED
    assert [each.code for each in case.notes] == ["captured_inputs"]


def test_functions_that_need_grad_mode_get_it() -> None:
    def gradient_penalty(x: Tensor) -> Tensor:
        return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]

    assert check(gradient_penalty, (real(3),)).outcome is Outcome.PASSED
    assert prepare(gradient_penalty, (real(3),), {}, seed=0).problem.grad_mode


def test_functions_with_other_values_under_no_grad_are_measured_with_grad_mode() -> None:
    def other(x: Tensor) -> Tensor:
        return x.sin() if torch.is_grad_enabled() else x.cos()

    assert_passes(run("backward", other, real(3)))


def test_views_of_the_inputs_and_the_inputs_themselves_may_be_returned() -> None:
    assert check(lambda x: (x, x.t(), x[0], x.view(-1)), (real(2, 3),)).outcome is Outcome.PASSED


def test_complex_beside_odd_real_inputs_is_read_at_aligned_addresses() -> None:
    z = torch.complex(real(2), real(2, seed=1)).detach().requires_grad_()
    assert check(lambda x, z: x.sum() * z * z.conj(), (real(3), z)).outcome is Outcome.PASSED


def test_empty_inputs_pass() -> None:
    assert check(torch.sin, (real(0, 3),)).outcome is Outcome.PASSED


@pytest.mark.parametrize("projection_needed", [True, False])
def test_a_projection_stands_before_the_function(projection_needed: bool) -> None:
    # the backward of cholesky is that of symmetric matrices: right on them, and only there
    def half(a: Tensor) -> Tensor:
        return torch.linalg.cholesky(a)

    def symmetric(a: Tensor) -> Tensor:
        return (a + a.mT) / 2

    matrix = real(3, 3).detach()
    matrix = (matrix @ matrix.mT + 3 * torch.eye(3, dtype=torch.float64)).requires_grad_()
    result = result_of(check(half, (matrix,), projection=symmetric if projection_needed else None), "backward")
    assert (result.outcome is Outcome.PASSED) == projection_needed


def test_an_invariant_stands_after_the_function() -> None:
    def axes(a: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(a + a.mT)
        # arbitrary choices, as a library makes them
        sign = torch.sign(torch.sin(1e9 * a.detach().sum() * torch.arange(1.0, 7.0, dtype=torch.float64)))
        return values, vectors * sign

    assert run("backward", axes, real(6, 6)).outcome is not Outcome.PASSED
    assert_passes(run("backward", axes, real(6, 6), invariant=lambda values, vectors: (values, vectors.abs())))


def test_inputs_on_a_kink_are_moved_where_that_is_allowed() -> None:
    x = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    assert check(torch.relu, (x,)).outcome is Outcome.INCONCLUSIVE
    case = check(torch.relu, (x,), resample=True)
    assert case.outcome is Outcome.PASSED
    assert [each.code for each in case.notes] == ["resampled"]
    assert torch.equal(x.detach(), torch.zeros(4, dtype=torch.float64))


def test_leaves_and_map_leaves_agree_on_every_container() -> None:
    tree = {"a": [1, (2, Pair(3, Box(4)))], "b": collections.OrderedDict(c=5), "d": torch.Size([6])}
    assert [leaf for _, leaf in leaves(tree)] == [1, 2, 3, 4, "box", 5, 6]
    mapped = map_leaves(lambda leaf: leaf * 10 if isinstance(leaf, int) else leaf, tree)
    assert [leaf for _, leaf in leaves(mapped)] == [10, 20, 30, 40, "box", 50, 60]
    assert [type(each) for each in mapped.values()] == [list, collections.OrderedDict, torch.Size]
    # what does not change is not copied
    same = map_leaves(lambda leaf: leaf, tree)
    assert (same == tree, same is tree) == (True, False)
    assert same["d"] is tree["d"]


def test_unsupported_is_not_wrong_and_passing_needs_a_derivative() -> None:
    case = check(lambda x: x.argmax(), (real(3),))
    assert case.outcome is Outcome.UNSUPPORTED
    assert all(kinds(each) == [] for each in case.checks)


class Solved(torch.autograd.Function):
    """Calls what it is given without grad mode, and differentiates by the parameters that it is given beside it."""

    @staticmethod
    def forward(ctx: Any, func: Any, x: torch.Tensor, *params: torch.Tensor) -> torch.Tensor:
        ctx.func = func
        ctx.save_for_backward(x, *params)
        with torch.no_grad():
            return func(x)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, *params = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = ctx.func(x)
        return None, *torch.autograd.grad(value, (x, *params), grad_output, allow_unused=True)


class SolvedHalf(Solved):
    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grads = Solved.backward(ctx, grad_output)
        return (*grads[:-1], None if grads[-1] is None else grads[-1] / 2)


class SolvedOnce(Solved):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return Solved.backward(ctx, grad_output)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_backward_that_is_once_differentiable_is_so_whatever_the_function_captures(dtype: torch.dtype) -> None:
    weight, x = (each.detach().to(dtype).requires_grad_() for each in (real(3), real(3, seed=1)))
    case = check(SolvedOnce.apply, (lambda x: weight * x, x.detach(), weight), checks=["double_backward"])
    assert result_of(case, "double_backward").reason == "once_differentiable"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("cls", "outcome"), [(Solved, Outcome.PASSED), (SolvedHalf, Outcome.FAILED)])
def test_inputs_that_a_callable_argument_holds_as_well_are_stepped_in_their_own_memory(
    cls: Any, outcome: Outcome, dtype: torch.dtype
) -> None:
    weight, x = (each.detach().to(dtype).requires_grad_() for each in (real(3), real(3, seed=1)))
    before = weight.detach().clone()
    case = check(cls.apply, (lambda x: weight * x, x, weight), checks=["backward", "needs_input_grad"])
    assert case.outcome is outcome
    assert [each.code for each in case.notes] == ["captured_inputs"]
    assert torch.equal(weight.detach(), before)


class SolvedByModule(Solved):
    """Gets a module and its parameters: copies take their places in its forward, not in its backward."""


class FrozenWrong(Solved):
    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grads = Solved.backward(ctx, grad_output)
        return grads if ctx.needs_input_grad[1] else (*grads[:-1], None if grads[-1] is None else 2 * grads[-1])


def test_frozen_inputs_are_no_matter_where_copies_do_not_reach_the_backward() -> None:
    module = torch.nn.Linear(3, 2, bias=False).double()
    case = check(SolvedByModule.apply, (module, real(4, 3), module.weight), checks=["backward", "needs_input_grad"])
    assert case.outcome is not Outcome.FAILED
    assert result_of(case, "backward").outcome is Outcome.PASSED
    assert result_of(case, "needs_input_grad").reason == "captured_inputs"


def test_a_wrong_gradient_where_an_input_is_frozen_is_still_found() -> None:
    def func(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return FrozenWrong.apply(lambda y: y * weight, x, weight)

    case = check(func, (real(3), real(3, seed=1)), checks=["needs_input_grad"])
    assert result_of(case, "needs_input_grad").outcome is Outcome.FAILED
