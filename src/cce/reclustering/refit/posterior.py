"""The vectors that ids want: for each id the minimum of the loss on its own rows under a common normal prior.

One Gauss-Newton step for all ids of a block at once: with the slope `J` of a row's logit in the id's vector, the loss
is nearly a parabola of curvature `A = Λ + Σ l'' J Jᵀ`. The prior is learned from the ids themselves (EM), and needs no
setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.compiled import available, compile_loops

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from torch import nn

    from cce.collection import EmbeddingCollection
    from cce.reclustering.refit.rows import RowIndex, Rows
    from cce.schema import Batch

from cce.reclustering.refit.rows import bags_of
from cce.reclustering.refit.slopes import Probe

SHARES = (1.0, 0.3, 0.09)  # of a step that are tried, until one lowers the loss of the id
SMALLEST_VARIANCE = 1e-6
SMALLEST_SHARE = 1e-4  # of the largest variance: a flatter prior than float32 can tell apart has no Cholesky factor
OUTER_ROWS = 1 << 12  # whose J Jᵀ are written out at a time, where nothing is compiled


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
    def learned(cls, fits: Sequence[Fit]) -> Prior:
        """The M step: the covariance of the vectors, and what is not known of each of them."""
        vectors = torch.cat([fit.vectors for fit in fits])
        unknown = torch.cat([torch.linalg.inv(fit.curvatures) for fit in fits]).mean(0)
        covariance = torch.cov(vectors.T, correction=0).reshape(unknown.shape) + unknown
        variances, axes = torch.linalg.eigh(covariance.double())
        floor = max(float(variances[-1]) * SMALLEST_SHARE, SMALLEST_VARIANCE)
        precision = (axes / variances.clamp(min=floor)) @ axes.T
        return cls(vectors.mean(0), precision.float().contiguous())  # as it is when it was saved and read again

    def as_fit(self, num_ids: int) -> Fit:
        """So many ids of which nothing else is known, as one."""
        return Fit(torch.zeros(1, dtype=torch.int64), self.mean.unsqueeze(0), num_ids * self.precision.unsqueeze(0))

    def cost(self, vectors: Tensor) -> Tensor:
        """`½ (v - μ)ᵀ Λ (v - μ)` of each vector."""
        error = vectors - self.mean
        return ((error @ self.precision) * error).sum(1) / 2


@dataclass(frozen=True)
class Fit:
    """What some ids want."""

    ids: Tensor
    vectors: Tensor  # (n, embedding_dim)
    curvatures: Tensor  # (n, embedding_dim, embedding_dim): of the loss with the prior


@dataclass(frozen=True)
class Parabolas:
    """The losses of some ids as functions of their vectors, nearly: `½ vᵀ A v - bᵀ v` without the prior."""

    ids: Tensor
    curvatures: Tensor  # A: (n, embedding_dim, embedding_dim)
    pulls: Tensor  # b: (n, embedding_dim)
    points: Tensor  # (n, embedding_dim): the vectors around which this holds
    losses: Tensor  # (n): the losses there

    def minimum(self, prior: Prior) -> Fit:
        """Where they are least with the prior."""
        curvatures = self.curvatures + prior.precision
        pulls = (self.pulls + prior.precision @ prior.mean).unsqueeze(2)
        return Fit(self.ids, torch.cholesky_solve(pulls, torch.linalg.cholesky(curvatures)).squeeze(2), curvatures)


def learn_prior(parabolas: Sequence[Parabolas], prior: Prior, num_steps: int) -> Prior:
    """EM: where the minima lie, and how well they are known, under the prior of the last step."""
    for _ in range(num_steps):
        prior = Prior.learned([some.minimum(prior) for some in parabolas])
    return prior


class Block:
    """Some ids of one feature and all of their rows; everything but the vectors of these ids is fixed."""

    def __init__(
        self,
        model: nn.Module,
        tables: EmbeddingCollection,
        rows: Rows,
        index: RowIndex,
        ids: Tensor,
        *,
        loss: Callable[[Tensor, Batch], Tensor],
    ) -> None:
        self.ids, self.loss = ids, loss
        numbers, self.bounds = index.rows_of(ids)
        table = list(tables.tables.values())[index.feature]
        self.device = next(model.parameters()).device
        self.batch = rows.fetch(numbers).to(self.device)
        self.probe = Probe(model, tables, self.batch, index.feature)
        lengths = torch.from_numpy(self.bounds).diff()
        self.owners = torch.repeat_interleave(torch.arange(len(ids)), lengths)  # of the rows
        self.shares = self._shares(tables, index.feature)
        with torch.no_grad():
            self.present = table.embed(ids.to(self.device)).float().cpu()  # type: ignore[operator]

    def parabolas(self, vectors: Tensor | None = None) -> Parabolas:
        """The losses of the ids around vectors, or around the present ones."""
        vectors = self.present if vectors is None else vectors
        logits, slopes = self.probe.slopes(self._shift(vectors))
        losses, first, second = _derivatives(logits, lambda some: self.loss(some, self.batch))
        slopes = (slopes * self.shares.to(slopes)).float().cpu()
        curvatures = self._curvatures(slopes, second)
        pulls = torch.einsum("nij,nj->ni", curvatures, vectors) - self._sum(slopes * first.unsqueeze(1))
        return Parabolas(self.ids, curvatures, pulls, vectors, self._sum(losses.unsqueeze(1)).squeeze(1))

    def fit(self, prior: Prior, *, num_steps: int) -> Fit:
        """So many Gauss-Newton steps of each id from its present vector."""
        fit = self.descend(self.parabolas(), prior)
        for _ in range(num_steps - 1):
            fit = self.descend(self.parabolas(fit.vectors), prior)
        return fit

    def descend(self, parabolas: Parabolas, prior: Prior) -> Fit:
        """Go to the minima, or a part of the way, or stay: the loss of an id with its prior never rises."""
        wanted, vectors = parabolas.minimum(prior), parabolas.points
        before, step = parabolas.losses + prior.cost(vectors), wanted.vectors - vectors
        waiting = torch.ones(len(vectors), dtype=torch.bool)
        for share in SHARES:
            tried = torch.where(waiting.unsqueeze(1), vectors + share * step, vectors)
            is_better = waiting & (self._losses(tried, prior) <= before)
            vectors = torch.where(is_better.unsqueeze(1), tried, vectors)
            waiting = waiting & ~is_better
            if not waiting.any():
                break
        return Fit(self.ids, vectors, wanted.curvatures)

    def _losses(self, vectors: Tensor, prior: Prior) -> Tensor:
        """The loss of each id on its rows, with its prior."""
        with torch.no_grad():
            losses = self.loss(self.probe.logits(self._shift(vectors)), self.batch).float().cpu()
        return self._sum(losses.unsqueeze(1)).squeeze(1) + prior.cost(vectors)

    def _shift(self, vectors: Tensor) -> Tensor:
        """What vectors of the ids change in those of their rows."""
        shift: Tensor = (vectors - self.present)[self.owners] * self.shares
        return shift.to(self.probe.vectors)

    def _shares(self, tables: EmbeddingCollection, feature: int) -> Tensor:
        """How much of an id's vector is in that of its row: all of it, or one part of a mean."""
        if self.batch.offsets is None or tables.pooling == "sum":
            return torch.ones(1, 1)
        _, lengths = bags_of(self.batch, feature)
        share: Tensor = 1 / lengths.cpu().float()
        return share.unsqueeze(1)

    def _sum(self, values: Tensor) -> Tensor:
        """Sums over the rows of each id."""
        out = torch.zeros(len(self.ids), values.shape[1])
        if available:
            _sum_segments(values.contiguous().numpy(), self.bounds, out.numpy())
            return out
        return out.index_add_(0, self.owners, values)

    def _curvatures(self, slopes: Tensor, weights: Tensor) -> Tensor:
        """`Σ w J Jᵀ` over the rows of each id."""
        dim = slopes.shape[1]
        out = torch.zeros(len(self.ids), dim, dim)
        if available:
            _sum_outer(slopes.contiguous().numpy(), weights.numpy(), self.bounds, out.numpy())
            return out
        for start in range(0, len(slopes), OUTER_ROWS):
            some = slice(start, start + OUTER_ROWS)
            weighted = slopes[some] * weights[some].unsqueeze(1)
            out.index_add_(0, self.owners[some], weighted.unsqueeze(2) * slopes[some].unsqueeze(1))
        return out


def _derivatives(logits: Tensor, loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each row, its slope in the logit, and its curvature, which is held above zero."""
    with torch.enable_grad():
        logits = logits.detach().requires_grad_()
        losses = loss(logits)
        (first,) = torch.autograd.grad(losses.sum(), logits, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), logits)
    return losses.detach().cpu(), first.detach().cpu(), second.clamp(min=0).cpu()


@compile_loops
def _sum_segments(values: np.ndarray, bounds: np.ndarray, out: np.ndarray) -> None:
    for segment in range(len(bounds) - 1):
        for row in range(bounds[segment], bounds[segment + 1]):
            for column in range(values.shape[1]):
                out[segment, column] += values[row, column]


@compile_loops
def _sum_outer(slopes: np.ndarray, weights: np.ndarray, bounds: np.ndarray, out: np.ndarray) -> None:
    dim = slopes.shape[1]
    for segment in range(len(bounds) - 1):
        for row in range(bounds[segment], bounds[segment + 1]):
            for i in range(dim):
                weighted = weights[row] * slopes[row, i]
                for j in range(i + 1):
                    out[segment, i, j] += weighted * slopes[row, j]
        for i in range(dim):
            for j in range(i):
                out[segment, j, i] = out[segment, i, j]
