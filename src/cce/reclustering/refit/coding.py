"""Estimates become pointers: for each column a codebook, and for each id the row that costs it the least.

What a row costs an id is measured by the Hessian of its loss, `½ (q - p)ᵀ A (q - p)`, not by distance: an id that
occurs often, or a direction that matters, is coded with more care.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.clustering import kmeans
from cce.compiled import compile_loops
from cce.embeddings import CCEEmbedding, Compact
from cce.indexing import PointerStore, blocks

if TYPE_CHECKING:
    import numpy as np

    from cce.reclustering.refit.estimates import Prior, Quadratics

SWEEPS = 2  # over several columns: the best row of one depends on those of the others
ITERATIONS = 4  # of k-means, from the rows of the table as it is
POINTS_PER_ROW = 32  # ids that are sampled for each row of a codebook, to say where centroids start


@dataclass(frozen=True)
class RefitEvent:
    """What a refit did to one table."""

    num_ids: int  # whose pointers were fitted to their own rows
    churn: float  # share of pointers that changed
    seconds: float


class TableCoder:
    """New codebooks and pointers of a table, from the estimates of its ids, block by block; the table stays as it is.

    The best row of a codebook solves `(Σ A) q = Σ b` over its ids.
    """

    def __init__(
        self, table: CCEEmbedding, sample: Quadratics, prior: Prior, generator: torch.Generator | None
    ) -> None:
        """sample: a block of ids of all counts."""
        self.table = table
        drawn = torch.randperm(len(sample.points), generator=generator)
        drawn = drawn[sample.num_rows[drawn] > 0][: POINTS_PER_ROW * table.num_rows].sort().values
        some = sample[drawn]
        vectors = torch.cat([some[part].solve(prior)[0] for part in some.split()] or [some.points])
        old = table.codebook.detach().float().cpu().view(table.num_columns, table.num_rows, -1)
        pieces = zip(vectors.chunk(table.num_columns, dim=1), old, strict=True)
        found = [
            kmeans(piece.contiguous(), table.num_rows, init=init, max_iter=ITERATIONS) if len(vectors) else None
            for piece, init in pieces
        ]
        self.codebooks = torch.stack(
            [init if fit is None else fit.centroids for fit, init in zip(found, old, strict=True)]
        )
        shape = (*self.codebooks.shape, table.width)
        self.hessians, self.targets = (
            torch.zeros(shape, dtype=torch.float64),
            torch.zeros(shape[:3], dtype=torch.float64),
        )
        self.pointers = torch.zeros(table.row_map.num_rows, table.num_columns, dtype=torch.int32)
        self.num_ids = 0

    def add(self, rows: slice, quadratics: Quadratics, prior: Prior) -> None:
        """Code the ids in some rows of the table."""
        self.num_ids += int((quadratics.num_rows > 0).sum())
        own = self.pointers[rows]
        for some in quadratics.split():
            part = quadratics[some]
            own[some], targets = assign(part.solve(prior)[0], hessians := part.hessians(prior), self.codebooks)
            _add_ids(hessians.numpy(), own[some].numpy(), targets.numpy(), self.hessians.numpy(), self.targets.numpy())

    def compact(self) -> tuple[Compact, float]:
        """What the table is to become, and the share of pointers that change; rows without ids stay as they are."""
        table = self.table
        is_empty = (self.hessians == 0).flatten(2).all(2)
        matrices = torch.where(is_empty[..., None, None], torch.eye(table.width).double(), self.hessians)
        solved = torch.linalg.solve(matrices, self.targets.unsqueeze(3)).squeeze(3).to(self.codebooks)
        store = PointerStore(table.row_map.num_rows, table.num_columns, table.num_rows)
        for rows in blocks(table.row_map.num_rows):
            store.write(int(rows[0]), self.pointers[rows].long())
        pairs = zip(table.pointers.store.blocks(), store.blocks(), strict=True)
        changed = sum(int((before != after).sum()) for before, after in pairs)
        compact = Compact(torch.where(is_empty.unsqueeze(2), self.codebooks, solved), store, 0.0)
        return compact, changed / max(1, store.num_ids * store.num_columns)


def assign(vectors: Tensor, hessians: Tensor, codebooks: Tensor) -> tuple[Tensor, Tensor]:
    """The rows `(n, columns)` in `codebooks` `(columns, rows, width)` of each id, and the `b` of each column.

    Column after column, the others fixed: `q` costs `qᵀ A q - 2 qᵀ b`, and `b` `(n, columns, width)` is returned.
    """
    num_columns, _, width = codebooks.shape
    squares = (codebooks.unsqueeze(3) * codebooks.unsqueeze(2)).flatten(2)  # (columns, rows, width²)
    codes = torch.zeros(len(vectors), num_columns, dtype=torch.int32)
    targets = torch.empty(len(vectors), num_columns, width)
    _assign_ids(
        vectors.contiguous().numpy(),
        hessians.contiguous().numpy(),
        codebooks.contiguous().numpy(),
        codebooks.transpose(1, 2).contiguous().numpy(),
        squares.transpose(1, 2).contiguous().numpy(),
        codes.numpy(),
        targets.numpy(),
    )
    return codes, targets


@compile_loops
def _assign_ids(
    vectors: np.ndarray,
    hessians: np.ndarray,
    codebooks: np.ndarray,
    by_width: np.ndarray,  # (columns, width, rows): values of all rows side by side
    squares: np.ndarray,  # (columns, width², rows)
    codes: np.ndarray,
    targets: np.ndarray,
) -> None:
    num_columns, _, width = codebooks.shape
    left, cost = vectors[0].copy(), squares[0, 0].copy()
    num_turns = SWEEPS * num_columns if num_columns > 1 else 1
    for place in range(len(vectors)):
        left[:] = 0
        for turn in range(num_turns):
            column = turn % num_columns
            own, start = targets[place, column], column * width
            _target(vectors[place], hessians[place], left, start, own)
            row = _cheapest(hessians[place], start, own, by_width[column], squares[column], cost)
            codes[place, column] = row
            for i in range(width):
                left[start + i] = vectors[place, start + i] - codebooks[column, row, i]
        for column in range(num_columns):
            _target(vectors[place], hessians[place], left, column * width, targets[place, column])


@compile_loops
def _target(vector: np.ndarray, hessian: np.ndarray, left: np.ndarray, start: int, own: np.ndarray) -> None:
    for i in range(len(own)):
        own[i] = 0
        for j in range(len(vector)):
            is_own = start <= j < start + len(own)
            own[i] += hessian[start + i, j] * (vector[j] if is_own else left[j])


@compile_loops
def _cheapest(
    hessian: np.ndarray, start: int, own: np.ndarray, by_width: np.ndarray, squares: np.ndarray, cost: np.ndarray
) -> int:
    width = len(own)
    cost[:] = 0
    for i in range(width):
        twice = own[i] + own[i]
        for row in range(len(cost)):
            cost[row] -= twice * by_width[i, row]
        for j in range(i):  # hessians are symmetric
            twice = hessian[start + i, start + j] + hessian[start + i, start + j]
            for row in range(len(cost)):
                cost[row] += twice * squares[i * width + j, row]
        once = hessian[start + i, start + i]
        for row in range(len(cost)):
            cost[row] += once * squares[i * width + i, row]
    best = 0
    for row in range(1, len(cost)):
        if cost[row] < cost[best]:
            best = row
    return best


@compile_loops
def _add_ids(
    hessians: np.ndarray, codes: np.ndarray, targets: np.ndarray, total: np.ndarray, total_targets: np.ndarray
) -> None:
    num_columns, width = targets.shape[1:]
    for place in range(len(codes)):
        for column in range(num_columns):
            row, start = codes[place, column], column * width
            for i in range(width):
                total_targets[column, row, i] += targets[place, column, i]
                for j in range(width):
                    total[column, row, i, j] += hessians[place, start + i, start + j]
