"""Estimates become pointers: for each column a codebook, and for each id the row that costs it the least.

What a row costs an id is measured by the Hessian of its loss, `½ (q - p)ᵀ A (q - p)`, not by distance: an id that
occurs often, or a direction that matters, is coded with more care.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.compiled import available, compile_loops

if TYPE_CHECKING:
    import numpy as np

    from cce.reclustering.refit.estimates import Fit

SWEEPS = 2  # over several columns: the best row of one depends on those of the others


def assign(fit: Fit, codebooks: Tensor) -> tuple[Tensor, Tensor]:
    """The rows `(n, columns)` in `codebooks` `(columns, rows, width)` of each id, and the `b` of each column.

    Column after column, the others fixed: `q` costs `qᵀ A q - 2 qᵀ b`, and `b` `(n, columns, width)` is returned.
    """
    squares = (codebooks.unsqueeze(3) * codebooks.unsqueeze(2)).flatten(2)  # (columns, rows, width²)
    return (_assign_in_loops if available else _assign_plain)(fit, codebooks, squares)


def _assign_in_loops(fit: Fit, codebooks: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    num_columns, _, width = codebooks.shape
    codes = torch.zeros(len(fit.vectors), num_columns, dtype=torch.int64)
    targets = torch.empty(len(fit.vectors), num_columns, width)
    _assign_ids(
        fit.vectors.contiguous().numpy(),
        fit.hessians.contiguous().numpy(),
        codebooks.contiguous().numpy(),
        codebooks.transpose(1, 2).contiguous().numpy(),
        squares.transpose(1, 2).contiguous().numpy(),
        codes.numpy(),
        targets.numpy(),
    )
    return codes, targets


def _assign_plain(fit: Fit, codebooks: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    num_columns, _, width = codebooks.shape
    left = torch.zeros_like(fit.vectors)  # what the rows of an id leave of its vector; nothing is assigned yet
    codes = torch.zeros(len(fit.vectors), num_columns, dtype=torch.int64)
    for _ in range(SWEEPS if num_columns > 1 else 1):
        for column in range(num_columns):
            own = slice(column * width, (column + 1) * width)
            targets = _targets(fit, left, own)
            cost = fit.hessians_of(own).flatten(1) @ squares[column].T - 2 * targets @ codebooks[column].T
            codes[:, column] = cost.argmin(1)
            left[:, own] = fit.vectors[:, own] - codebooks[column][codes[:, column]]
    columns = [slice(at * width, (at + 1) * width) for at in range(num_columns)]
    return codes, torch.stack([_targets(fit, left, own) for own in columns], dim=1)


def _targets(fit: Fit, left: Tensor, own: slice) -> Tensor:
    """`b` of a column: the Hessian times its vector, and times what the other columns leave for it."""
    error = left.clone()
    error[:, own] = fit.vectors[:, own]
    return torch.einsum("nij,nj->ni", fit.hessians[:, own, :], error[:, fit.block_of(own)])


@dataclass(frozen=True)
class CodebookSums:
    """What the ids of each row add up to: the best row solves `(Σ A) q = Σ b`."""

    hessians: Tensor  # (columns, rows, width, width) float64
    targets: Tensor  # (columns, rows, width) float64

    @classmethod
    def zeros(cls, codebooks: Tensor) -> CodebookSums:
        """Of no ids yet."""
        num_columns, num_rows, width = codebooks.shape
        shape = (num_columns, num_rows, width, width)
        return cls(torch.zeros(shape, dtype=torch.float64), torch.zeros(shape[:3], dtype=torch.float64))

    def assign(self, fit: Fit, codebooks: Tensor) -> Tensor:
        """The rows of some ids, which are added to them."""
        codes, targets = assign(fit, codebooks)
        self.add(fit, codes, targets)
        return codes

    def add(self, fit: Fit, codes: Tensor, targets: Tensor) -> None:
        """Add some ids to the rows that they were assigned to."""
        if available:
            added = fit.hessians.contiguous().numpy(), codes.numpy(), targets.numpy()
            _add_ids(*added, self.hessians.numpy(), self.targets.numpy())
            return
        width = self.targets.shape[2]
        for column in range(codes.shape[1]):
            own = slice(column * width, (column + 1) * width)
            rows = codes[:, column]
            self.hessians[column].index_add_(0, rows, fit.hessians_of(own).double())
            self.targets[column].index_add_(0, rows, targets[:, column].double())

    def solve(self, codebooks: Tensor) -> Tensor:
        """The best rows for the ids that point to them; rows without ids stay as they are."""
        is_empty = (self.hessians == 0).flatten(2).all(2)
        matrices = torch.where(is_empty[..., None, None], torch.eye(codebooks.shape[2]).double(), self.hessians)
        solved = torch.linalg.solve(matrices, self.targets.unsqueeze(3)).squeeze(3).to(codebooks)
        return torch.where(is_empty.unsqueeze(2), codebooks, solved)


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
    block_dim = hessian.shape[1]
    block = start - start % block_dim
    for i in range(len(own)):
        own[i] = 0
        for j in range(block_dim):
            is_own = start <= block + j < start + len(own)
            own[i] += hessian[start + i, j] * (vector[block + j] if is_own else left[block + j])


@compile_loops
def _cheapest(
    hessian: np.ndarray, start: int, own: np.ndarray, by_width: np.ndarray, squares: np.ndarray, cost: np.ndarray
) -> int:
    width, first = len(own), start % hessian.shape[1]
    cost[:] = 0
    for i in range(width):
        twice = own[i] + own[i]
        for row in range(len(cost)):
            cost[row] -= twice * by_width[i, row]
        for j in range(i):  # hessians are symmetric
            twice = hessian[start + i, first + j] + hessian[start + i, first + j]
            for row in range(len(cost)):
                cost[row] += twice * squares[i * width + j, row]
        once = hessian[start + i, first + i]
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
    block_dim = hessians.shape[2]
    for place in range(len(codes)):
        for column in range(num_columns):
            row, start = codes[place, column], column * width
            first = start % block_dim
            for i in range(width):
                total_targets[column, row, i] += targets[place, column, i]
                for j in range(width):
                    total[column, row, i, j] += hessians[place, start + i, first + j]
