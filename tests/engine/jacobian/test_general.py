"""Linear maps with known Jacobians: any one wrong entry is found, whatever its place and the method."""

from __future__ import annotations

import numpy as np
import torch
from engine.jacobian.problems import problem, real
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradbot.engine.compare import compare_jacobians
from gradbot.engine.comparison import Verdict
from gradbot.engine.jacobian.chunked import compare_chunked
from gradbot.engine.jacobian.descend import compare_by_descent
from gradbot.engine.jacobian.point import Point, look
from gradbot.engine.jacobian.probe import probe
from gradbot.engine.jacobian.structured import compare_structured
from gradbot.engine.jacobian.tolerances import Tolerances
from gradbot.model import CheckSettings

TOLERANCES = Tolerances(eps=1e-6, atol=1e-5, rtol=1e-3)


class _Matrix(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, forward, backward):  # type: ignore[no-untyped-def]
        ctx.matrix = backward
        return forward @ x

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return ctx.matrix.T @ g, None, None


def matrix_point(rows: int, columns: int, seed: int, error: float) -> tuple[Point, tuple[int, int]]:
    """A linear map, and one entry of its backward's matrix that is off by `error`."""
    generator = np.random.default_rng(seed)
    matrix = torch.from_numpy(generator.uniform(-1, 1, (rows, columns)))
    entry = int(generator.integers(rows)), int(generator.integers(columns))
    wrong = matrix.clone()
    wrong[entry] += error
    return look(problem(lambda x: _Matrix.apply(x, matrix, wrong), real(columns, seed=seed))), entry


shapes = st.integers(1, 40), st.integers(1, 40)


@settings(max_examples=40, deadline=None)
@given(*shapes, st.integers(0, 1000), st.sampled_from([0.0, 0.01, -0.3, 2.0]))
def test_modes_see_exactly_what_is_wrong(rows: int, columns: int, seed: int, error: float) -> None:
    point, _ = matrix_point(rows, columns, seed, error)
    comparison = compare_jacobians(point.problem, settings=CheckSettings(), seed=seed)
    assert comparison.verdict is (Verdict.DIFFER if error else Verdict.AGREE)


@settings(max_examples=30, deadline=None)
@given(*shapes, st.integers(0, 1000), st.sampled_from([0.0, 0.01, -0.3, 2.0]))
def test_probes_agree_with_what_is_right_only(rows: int, columns: int, seed: int, error: float) -> None:
    point, _ = matrix_point(rows, columns, seed, error)
    assert probe(point, "reverse", TOLERANCES, np.random.default_rng(seed)).complete == (error == 0.0)


@settings(max_examples=20, deadline=None)
@given(*shapes, st.integers(0, 1000), st.sampled_from([0.05, -0.3, 2.0]))
def test_descent_ends_at_a_wrong_entry(rows: int, columns: int, seed: int, error: float) -> None:
    point, _ = matrix_point(rows, columns, seed, error)
    found = compare_by_descent(point, "reverse", TOLERANCES, np.random.default_rng(seed))
    assert found.verdict is Verdict.DIFFER


@settings(max_examples=20, deadline=None)
@given(*shapes, st.integers(0, 1000), st.sampled_from([0.0, 0.01]), st.sampled_from([1 << 12, 1 << 22]))
def test_chunks_see_every_entry(rows: int, columns: int, seed: int, error: float, budget: int) -> None:
    point, _ = matrix_point(rows, columns, seed, error)
    comparison = compare_chunked(point, "reverse", TOLERANCES, budget)
    assert comparison.verdict is (Verdict.DIFFER if error else Verdict.AGREE)


def _structures() -> dict[str, tuple[object, tuple[Tensor, ...]]]:
    weight = real(5, 3, seed=9)
    return {
        "elementwise": (torch.sin, (real(4, 6),)),
        "rows": (lambda x: x.softmax(-1), (real(4, 6),)),
        "product": (torch.matmul, (real(4, 5), weight)),
        "permuted": (lambda x: x.transpose(0, 1).cumsum(0), (real(4, 6),)),
        "gathered": (lambda x: x[[2, 0, 0]].exp(), (real(4, 6),)),
        "part": (lambda x, y: torch.cat([x * x, y]), (real(4, 6), real(2, 6, seed=1))),
        "convolution": (
            lambda x, w: torch.nn.functional.conv1d(x, w),
            (real(3, 2, 7), real(4, 2, 3, seed=1)),
        ),
    }


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(_structures())),
    st.sampled_from(["reverse", "forward"]),
    st.integers(0, 10_000),
    st.sampled_from([1.0, 1.1, 0.0]),
)
def test_structured_jacobians_are_right_to_the_entry(name: str, direction: str, place: int, factor: float) -> None:
    func, inputs = _structures()[name]
    entry = place % inputs[0].numel()

    class OneEntry(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x.clone()

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            wrong = g.clone(memory_format=torch.contiguous_format)
            wrong.view(-1)[entry] *= factor
            return wrong

        @staticmethod
        def jvp(ctx, tangent):  # type: ignore[no-untyped-def]
            wrong = tangent.clone(memory_format=torch.contiguous_format)
            wrong.view(-1)[entry] *= factor
            return wrong

    point = look(problem(lambda x, *rest: func(OneEntry.apply(x), *rest), *inputs))  # type: ignore[operator]
    comparison = compare_structured(point, direction, TOLERANCES, np.random.default_rng(place), 1 << 28)
    assert comparison is not None
    unseen = factor == 1.0 or (name == "gathered" and entry // 6 in (1, 3))
    assert comparison.verdict is (Verdict.AGREE if unseen else Verdict.DIFFER)
