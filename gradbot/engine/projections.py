"""Where constrained inputs live, and what of arbitrary outputs is not arbitrary.

A projection maps any tensor of the right shape smoothly onto the set where a function is defined, so that a step in any
direction stays there. It is the identity, or close to it, on the set itself. An invariant maps an output that is only
defined up to a choice (a sign, a basis) to something that does not depend on the choice. Both are differentiable
PyTorch, act on the last dimensions, and are named in configuration as `gradbot.engine.projections:spd`.
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST = 1e-3
"""How far inside an open set, relative to the size of the values, a projection stays."""


def symmetric(matrix: Tensor) -> Tensor:
    """(A + Aᴴ) / 2, of square matrices (..., n, n)."""
    return (matrix + matrix.mH) / 2


def spd(matrix: Tensor) -> Tensor:
    """The Hermitian part, shifted to be positive definite where it is not; (..., n, n).

    The shift follows the eigenvalues at the point and is held constant, so that the map is smooth and, of matrices that
    are positive definite already, the Hermitian part alone.
    """
    hermitian = symmetric(matrix)
    with torch.no_grad():
        values = torch.linalg.eigvalsh(hermitian.detach())
        least = SMALLEST * values.abs().amax(-1, keepdim=True).clamp_min(SMALLEST)
        # Rounded up to a power of two: the same shift at a point and a step beside it.
        lacking = (least - values.amin(-1, keepdim=True)).clamp_min(0)
        shift = torch.where(lacking > 0, torch.exp2(torch.ceil(torch.log2(lacking.clamp_min(1e-30))) + 1), 0.0)
    return hermitian + torch.diag_embed(shift.expand(*matrix.shape[:-1])).to(matrix.dtype)


def lower_triangular(matrix: Tensor) -> Tensor:
    """The lower triangle; (..., n, n)."""
    return matrix.tril()


def upper_triangular(matrix: Tensor) -> Tensor:
    """The upper triangle; (..., n, n)."""
    return matrix.triu()


def simplex(values: Tensor) -> Tensor:
    """Positive numbers that sum to one along the last dimension: |x| / sum |x|, the identity on the simplex."""
    positive = values.abs()
    return positive / positive.sum(-1, keepdim=True)


def log_probabilities(values: Tensor) -> Tensor:
    """Logarithms of probabilities along the last dimension: x - logsumexp(x), the identity on normalised ones."""
    return values - values.logsumexp(-1, keepdim=True)


def unit_norm(values: Tensor) -> Tensor:
    """x / |x| along the last dimension."""
    length: Tensor = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
    return values / length


def positive(values: Tensor) -> Tensor:
    """|x|, for inputs that are not zero."""
    return values.abs()


def without_sign(vectors: Tensor) -> Tensor:
    """Of columns (..., n, k) that are defined up to a sign or phase each: v vᴴ of every one, (..., k, n, n)."""
    columns = vectors.mT
    return columns.unsqueeze(-1) * columns.unsqueeze(-2).conj()


def span(vectors: Tensor) -> Tensor:
    """Of an orthonormal basis (..., n, k) that is defined up to a rotation: the projector V Vᴴ, (..., n, n)."""
    return vectors @ vectors.mH
