"""Per-id estimates: for each id the minimum of the loss on its own rows under a normal prior that all ids share.

With the Jacobian `J` of a row's output in the id's vector, the loss is nearly quadratic with the Gauss-Newton Hessian
`A = Λ + Σ l'' J Jᵀ`, and its minimum is one step away. The prior is learned from the ids themselves (EM) and has no
setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cce.reclustering.refit.blocks import (
    block_diagonal,
    block_dim_of,
    cholesky,
    diagonal_blocks,
    pack,
    solve_completed,
    unpack,
)

SMALLEST_VARIANCE = 1e-6
SMALLEST_SHARE = 1e-4  # of the largest variance: a flatter prior than float32 can tell apart has no Cholesky factor
SOLVED = 1 << 9  # ids whose Hessians are written out at a time


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

        unknown: the mean of the inverse Hessians, `(blocks, block_dim, block_dim)`. Blocks are independent.
        """
        dim = vectors.shape[1]
        covariance = torch.cov(vectors.T, correction=0).reshape(dim, dim)
        blocks = diagonal_blocks(covariance, unknown.shape[1]).view_as(unknown)
        precision = block_diagonal(_inverse(each) for each in blocks + unknown)
        return cls(vectors.mean(0), precision.float().contiguous())  # as it is when it was saved and read again

    def cost(self, vectors: Tensor) -> Tensor:
        """`½ (v - μ)ᵀ Λ (v - μ)` of each vector."""
        return (self.gradient(vectors) * (vectors - self.mean)).sum(1) / 2

    def gradient(self, vectors: Tensor) -> Tensor:
        """`Λ (v - μ)` of each vector."""
        return (vectors - self.mean) @ self.precision


def _inverse(covariance: Tensor) -> Tensor:
    """In float64, with no direction that hardly varies."""
    variances, axes = torch.linalg.eigh(covariance.double())
    floor = max(float(variances[-1]) * SMALLEST_SHARE, SMALLEST_VARIANCE)
    inverse: Tensor = (axes / variances.clamp(min=floor)) @ axes.T
    return inverse


@dataclass(frozen=True)
class Fit:
    """The estimates of a few ids, with Hessians written out."""

    ids: Tensor
    vectors: Tensor  # (n, embedding_dim)
    hessians: Tensor  # (n, embedding_dim, block_dim): diagonal blocks of the loss's with the prior

    def block_of(self, own: slice) -> slice:
        """The dimensions of the block that these lie in."""
        block_dim = self.hessians.shape[2]
        start = own.start - own.start % block_dim
        return slice(start, start + block_dim)

    def hessians_of(self, own: slice) -> Tensor:
        """Of some dimensions of a block, with each other."""
        start = self.block_of(own).start
        return self.hessians[:, own, own.start - start : own.stop - start]


@dataclass(frozen=True)
class Estimates:
    """The estimates of many ids, with packed Hessians."""

    ids: Tensor
    vectors: Tensor  # (n, embedding_dim)
    packed: Tensor  # (n, packed_size): the Hessians
    num_rows: Tensor  # (n): training rows of each id

    def split(self) -> Iterator[Fit]:
        """A few ids at a time."""
        for start in range(0, len(self.ids), SOLVED):
            some = slice(start, start + SOLVED)
            yield Fit(self.ids[some], self.vectors[some], unpack(self.packed[some], self.vectors.shape[1]))


@dataclass(frozen=True)
class Quadratics:
    """The losses of some ids around their vectors, nearly: `L + gᵀ (v - p) + ½ (v - p)ᵀ A (v - p)`, without the prior.

    num_moving: how many ids of a row move at once, in the mean of the rows of an id. If they know nothing of each
        other, `m` of them overshoot as if Hessians were `√m` times as large (and `m` times, if they all say the same),
        so each goes to the minimum of a quadratic as steep as that.
    """

    ids: Tensor
    points: Tensor  # p: (n, embedding_dim)
    losses: Tensor  # L: (n)
    gradients: Tensor  # g: (n, embedding_dim)
    packed: Tensor  # A: (n, packed_size), its diagonal blocks
    num_moving: Tensor  # (n): 1 if ids move one at a time
    num_rows: Tensor  # (n)
    common: Tensor | None = None  # (embedding_dim, embedding_dim): the sum of all A, if there is more than one block

    def __getitem__(self, some: Tensor | slice) -> Quadratics:
        parts = {name: part[some] for name, part in vars(self).items() if name != "common"}
        return Quadratics(**parts, common=self.common)

    def minimum(self, prior: Prior) -> Tensor:
        """Where they are least with the prior, each by itself."""
        return self._minimum(prior, torch.ones_like(self.num_moving))

    def step(self, prior: Prior) -> Tensor:
        """Where to go if all go at once."""
        return self._minimum(prior, self.num_moving.sqrt())

    def with_prior(self, prior: Prior, vectors: Tensor) -> Estimates:
        """Vectors, with Hessians to which the prior is added; the prior's alone if one is not finite. In place."""
        hessians = self.packed.nan_to_num_(0, posinf=0, neginf=0)
        return Estimates(self.ids, vectors, hessians.add_(pack(self.blocks(prior))), self.num_rows)

    def blocks(self, prior: Prior) -> Tensor:
        """The precision of a prior in the blocks of the Hessians."""
        return diagonal_blocks(prior.precision, block_dim_of(self.packed.shape[1], self.points.shape[1]))

    def split(self) -> Iterator[slice]:
        """A few ids at a time: fewer, if their vectors are wide."""
        dim = self.points.shape[1]
        size = max(1, SOLVED * block_dim_of(self.packed.shape[1], dim) // dim)
        return (slice(start, start + size) for start in range(0, len(self.ids), size))

    def posterior_covariance(self, prior: Prior) -> Tensor:
        """The mean inverse Hessian with the prior: `(blocks, block_dim, block_dim)`."""
        blocks, total = self.blocks(prior), torch.zeros(())
        shape = (-1, len(blocks) // blocks.shape[1], blocks.shape[1], blocks.shape[1])
        for some in self.split():
            hessians = unpack(self.packed[some], len(blocks)).add_(blocks).view(shape)
            total = total + torch.cholesky_inverse(cholesky(hessians)).sum(0)
        return total / len(self.ids)

    def _minimum(self, prior: Prior, factors: Tensor) -> Tensor:
        """Steps from the points: an id whose Hessian cannot be solved, or is not finite, stays where it is."""
        vectors = torch.empty_like(self.points)
        for some in self.split():
            points = self.points[some]
            hessians = unpack(self.packed[some], points.shape[1]).mul_(factors[some, None, None])
            descent = -self.gradients[some] - prior.gradient(points)
            if self.common is None:
                lower = cholesky(hessians.add_(prior.precision))
                step = torch.cholesky_solve(descent.unsqueeze(2), lower).squeeze(2)
            else:
                step = solve_completed(hessians, self.common, self.blocks(prior), descent)
            vectors[some] = points + torch.where(step.isfinite().all(1, keepdim=True), step, 0)
        return vectors


def learn_prior(quadratics: Quadratics, prior: Prior, num_steps: int) -> Prior:
    """EM: where the minima lie, and how well they are known, under the prior of the last step."""
    for _ in range(num_steps):
        prior = Prior.learned(quadratics.minimum(prior), quadratics.posterior_covariance(prior))
    return prior
