"""Per-id estimates: for each id the minimum of the loss on its own rows under a normal prior that all ids share.

With the Jacobian `J` of a row's output in the id's vector, the loss is nearly quadratic with the Gauss-Newton Hessian
`A = Λ + Σ l'' J Jᵀ`, and its minimum is one step away. The prior is learned from the ids themselves (EM) and has no
setting. What is held of an id is the lower triangle of its Hessian (136 of 256 values for 16 dimensions) and its
gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.compiled import compile_loops
from cce.distributed import Ranks, sum_over_ranks

if TYPE_CHECKING:
    import numpy as np

    from cce.reclustering.refit.lookups import Found

SMALLEST_VARIANCE = 1e-6
SMALLEST_SHARE = 1e-4  # of the largest variance: a flatter prior than float32 can tell apart has no Cholesky factor
SOLVED = 1 << 9  # ids whose Hessians are written out at a time
DAMPING = (1e-6, 1e-4, 1e-2)  # of the mean diagonal, added where a matrix has no Cholesky factor
STAYS = 1e30  # a diagonal so large that nothing moves
EM_STEPS = 4
LATER_EM_STEPS = 2  # from the prior of the last round, which is near


def packed_size(dim: int) -> int:
    """Values of a lower triangle, whose rows follow each other."""
    return dim * (dim + 1) // 2


def unpack(packed: Tensor, dim: int) -> Tensor:
    """Lower triangles `(n, packed_size)` to symmetric matrices `(n, dim, dim)`."""
    matrices = torch.empty(len(packed), dim, dim)
    _unpack(packed.numpy(), matrices.numpy())
    return matrices


@compile_loops
def _unpack(packed: np.ndarray, matrices: np.ndarray) -> None:
    for index in range(len(packed)):
        at = 0
        for i in range(matrices.shape[1]):
            for j in range(i + 1):
                matrices[index, i, j] = matrices[index, j, i] = packed[index, at]
                at += 1


def cholesky(matrices: Tensor) -> Tensor:
    """Cholesky factors `(n, d, d)`: damped where there are none, and where that fails so large that ids stay."""
    lower, info = torch.linalg.cholesky_ex(matrices)
    for damping in (*DAMPING, None):
        bad = (info > 0) | ~lower.diagonal(dim1=-2, dim2=-1).isfinite().all(-1)  # what is not finite reaches it
        if not bool(bad.any()):
            break
        own, eye = matrices[bad], torch.eye(matrices.shape[-1])
        mean = own.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None].clamp(min=1e-12)
        tried = STAYS * eye.expand_as(own) if damping is None else own + damping * mean * eye
        lower[bad], info[bad] = torch.linalg.cholesky_ex(tried)
    factors: Tensor = lower
    return factors


@dataclass(frozen=True)
class Prior:
    """A normal distribution of vectors."""

    mean: Tensor  # (embedding_dim)
    precision: Tensor  # (embedding_dim, embedding_dim)

    @classmethod
    def around(cls, vectors: Tensor) -> Prior:
        """Their mean, and the same variance in all directions: where EM starts."""
        variance = vectors.var().clamp(min=SMALLEST_VARIANCE)
        return cls(vectors.mean(0), torch.eye(vectors.shape[1]) / variance)

    @classmethod
    def learned(cls, vectors: Tensor, unknown: Tensor) -> Prior:
        """The M step: the covariance of the vectors plus their mean posterior covariance.

        unknown: the mean of the inverse Hessians.
        """
        covariance = torch.cov(vectors.T, correction=0).reshape(unknown.shape) + unknown
        variances, axes = torch.linalg.eigh(covariance.double())
        floor = max(float(variances[-1]) * SMALLEST_SHARE, SMALLEST_VARIANCE)  # no direction hardly varies
        precision = (axes / variances.clamp(min=floor)) @ axes.T
        return cls(vectors.mean(0), precision.float().contiguous())  # as it is when it was saved and read again

    def gradient(self, vectors: Tensor) -> Tensor:
        """`Λ (v - μ)` of each vector."""
        return (vectors - self.mean) @ self.precision


@dataclass(frozen=True)
class Quadratics:
    """The losses of some ids around their vectors, nearly: `L + gᵀ (v - p) + ½ (v - p)ᵀ A (v - p)`, without the prior.

    moving: how many vectors of a row move at once, in the mean; 1 if ids move one at a time. Where `m` of them say the
        same they overshoot `m` times, so each goes to the minimum of a quadratic that is `m` times as steep.
    """

    points: Tensor  # p: (n, embedding_dim)
    gradients: Tensor  # g: (n, embedding_dim)
    packed: Tensor  # A: (n, packed_size)
    num_rows: Tensor  # (n)
    moving: float = 1.0

    def __getitem__(self, some: Tensor | slice) -> Quadratics:
        own = self.points[some], self.gradients[some], self.packed[some], self.num_rows[some]
        return Quadratics(*own, self.moving)

    def split(self) -> Iterator[slice]:
        """A few ids at a time."""
        return (slice(start, start + SOLVED) for start in range(0, len(self.points), SOLVED))

    def learn_prior(self, prior: Prior | None = None) -> Prior:
        """EM: where the minima lie, each by itself, and how well they are known, under the prior of the last step.

        prior: of the last round.
        """
        num_steps, prior = LATER_EM_STEPS if prior else EM_STEPS, prior or Prior.around(self.points)
        for _ in range(num_steps):
            vectors, total = torch.empty_like(self.points), torch.zeros_like(prior.precision)
            for some in self.split():
                vectors[some], lower = self[some].solve(prior, 1.0)
                total += torch.cholesky_inverse(lower).sum(0)
            prior = Prior.learned(vectors, total / len(self.points))
        return prior

    def solve(self, prior: Prior, steepness: float | None = None) -> tuple[Tensor, Tensor]:
        """Where they are least with the prior if all go at once, and the Cholesky factors of the Hessians.

        An id whose Hessian cannot be solved, or is not finite, stays where it is.
        """
        factor = self.moving if steepness is None else steepness
        hessians = unpack(self.packed, self.points.shape[1]).mul_(factor).add_(prior.precision)
        lower = cholesky(hessians)
        descent = -self.gradients - prior.gradient(self.points)
        step = torch.cholesky_solve(descent.unsqueeze(2), lower).squeeze(2)
        return self.points + torch.where(step.isfinite().all(1, keepdim=True), step, 0), lower

    def hessians(self, prior: Prior) -> Tensor:
        """With the prior, `(n, embedding_dim, embedding_dim)`; what is not finite is left out."""
        return unpack(self.packed, self.points.shape[1]).nan_to_num_(0, posinf=0, neginf=0).add_(prior.precision)


class Sums:
    """Sums over the rows of each id of a table, which one pass adds to."""

    def __init__(self, num_ids: int, dim: int) -> None:
        self.packed = torch.zeros(num_ids, packed_size(dim))
        self.gradients, self.num_rows = torch.zeros(num_ids, dim), torch.zeros(num_ids)
        self.curvature = torch.zeros(2, dtype=torch.float64)  # of all rows, and times the vectors that move in each

    def add(self, found: Found, first: Tensor, second: Tensor) -> Tensor:
        """Add rows with derivatives of their losses `(rows)`; how many ids of the table were found in each."""
        counts, own = torch.zeros_like(first), (self.packed, self.gradients, self.num_rows)
        places = (found.slots >= 0).nonzero().squeeze(1)
        _add_rows(*(each.contiguous().numpy() for each in (places, *found, first, second, *own, counts)))
        return counts

    def add_moving(self, curvature: Tensor, num_moving: Tensor) -> None:
        """Add how many vectors of each row move, weighted by the curvature of its ids' losses `(rows)`."""
        self.curvature += torch.stack([curvature.sum(), curvature @ num_moving])

    def quadratics(self, points: Tensor, ranks: Ranks) -> Quadratics:
        """Of the ids, from the rows of all processes."""
        for tensor in (self.packed, self.gradients, self.num_rows, self.curvature):
            sum_over_ranks(tensor, ranks)
        whole, moving = self.curvature.tolist()
        moving = max(1.0, moving / whole if whole else 1.0)
        return Quadratics(points, self.gradients, self.packed, self.num_rows, moving)


@compile_loops
def _add_rows(
    places: np.ndarray,
    rows: np.ndarray,
    slots: np.ndarray,
    cells: np.ndarray,
    jacobians: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    packed: np.ndarray,
    gradients: np.ndarray,
    num_rows: np.ndarray,
    counts: np.ndarray,
) -> None:
    for place in places:
        slot, row, jacobian = slots[place], rows[place], jacobians[cells[place]]
        num_rows[slot] += 1
        counts[row] += 1
        for i in range(gradients.shape[1]):
            gradients[slot, i] += first[row] * jacobian[i]
        _add_outer(second[row], jacobian, packed[slot])


@compile_loops
def _add_outer(factor: float, vector: np.ndarray, packed: np.ndarray) -> None:
    """By itself, it is compiled to loops twice as fast."""
    for i in range(len(vector)):
        weighted, start = factor * vector[i], i * (i + 1) // 2
        for j in range(i + 1):
            packed[start + j] += weighted * vector[j]
