"""Exact nearest centroids in plain torch: the definition, and a faster search that equals it to the bit.

The squared distance is, by definition, `(x_0 - c_0)² + (x_1 - c_1)² + …`, each step rounded to float32, added from the
first dimension to the last; ties go to the lower index. `measure_block` writes that down.

On a CPU less is measured. Points of few dimensions are sorted into boxes of neighbours, the leaves of a k-d tree: a
centroid farther from a box than every point inside is from some centroid cannot be the nearest of any. A matrix product
then orders the centroids that are left: `score(x, c) = |c|² / 2 - x·c` has the order of the distances but for rounding.
Where the second-best score is so close to the best that rounding could have swapped them, the definition decides.

Points go through in blocks, so memory is bounded.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from cce.compiled import parallel_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cce.clustering.progress import Progress

PAIRS_IN_BLOCK = 1 << 19  # scores in one product: 2 MB, which stay in the cache
PAIRS_IN_SMALL_BLOCK = (1 << 15) - 1  # below where torch starts threads of its own, which wait long for a busy core
PAIRS_IN_BLOCK_GPU = 1 << 26
FEW_NUMBERS = 1 << 20  # differences of coordinates that are measured before anything else would pay
WIDEST_TREE = 8  # beyond, boxes prune little
POINTS_IN_LEAF = 128  # at most
SLACK = 1e-5  # relative; float32 distances of up to 32 dimensions are off by less than 2e-6
ROUNDING = 2.0**-24
TINY = 1e-33  # absolute, for squares and scores that underflow


class Found(NamedTuple):
    """What a search says of every point."""

    nearest: Tensor  # (n,) int64
    squares: Tensor  # (n,) float32, squared distance to it


def measure_block(rows: Tensor, centroids: Tensor) -> Found:
    """Return the nearest centroids of few rows, every distance measured: the definition.

    `(n, width), (k, width)`, or `(n, k, width)` with centroids of its own for each row.
    """
    squares = torch.zeros(rows.shape[0], centroids.shape[-2], device=rows.device)
    for row_column, centroid_column in zip(rows.unbind(1), centroids.unbind(-1), strict=True):
        difference = row_column[:, None] - centroid_column
        squares += difference.mul_(difference)
    nearest = squares.argmin(1)
    return Found(nearest, squares.gather(1, nearest[:, None]).squeeze(1))


def measure_all(points: Tensor, centroids: Tensor, progress: Progress | None = None) -> Found:
    """Return the nearest centroid of every point by the definition, block by block."""
    num_pairs = PAIRS_IN_SMALL_BLOCK if points.device.type == "cpu" else PAIRS_IN_BLOCK_GPU
    blocks = []
    for rows in torch.split(points, max(1, num_pairs // len(centroids))):
        with _reported(progress, len(rows) * len(centroids)):
            blocks.append(measure_block(rows, centroids))
    return Found(*map(torch.cat, zip(*blocks, strict=True)))


def measure_nearest(points: Tensor, centroids: Tensor, nearest: Tensor) -> Tensor:
    """Return the `(n,)` squared distance of every point to its centroid, by the definition."""
    squares = torch.zeros_like(points[:, 0])
    for row_column, centroid_column in zip(points.unbind(1), centroids.unbind(1), strict=True):
        difference = row_column - centroid_column[nearest]
        squares += difference.mul_(difference)
    return squares


class PlainSearch:
    """Searches the same points for the nearest of ever new centroids; each search starts from what the last found."""

    def __init__(self, points: Tensor) -> None:
        self.points = points
        self.tree: Tree | None = None

    def __call__(self, centroids: Tensor, progress: Progress | None = None) -> Found:
        """Return the nearest centroid of every point."""
        points, width = self.points, self.points.shape[1]
        if points.device.type != "cpu" or len(points) * centroids.numel() <= FEW_NUMBERS:
            return measure_all(points, centroids, progress)
        if width > WIDEST_TREE or len(points) <= POINTS_IN_LEAF:
            return Scores(centroids).search_all(points, progress)
        self.tree = self.tree or Tree(points)
        return self.tree.search(centroids, progress)


class Tree:
    """Points sorted into leaves of equal size by a balanced k-d tree; the last leaves may repeat the last point."""

    def __init__(self, points: Tensor) -> None:
        self.num_points = len(points)
        depth = (-(-len(points) // POINTS_IN_LEAF) - 1).bit_length()
        size = -(-len(points) >> depth) << depth
        self.order = _sort_into_leaves(points, torch.arange(size, device="cpu").clamp_(max=len(points) - 1), depth)
        self.leaves = points[self.order].view(1 << depth, -1, points.shape[1])
        self.low, self.high = self.leaves.amin(1), self.leaves.amax(1)
        self.nearest: Tensor | None = None  # (num_leaves, points in a leaf)

    def search(self, centroids: Tensor, progress: Progress | None) -> Found:
        """Return the nearest centroid of every point, and keep them for the bounds of the next search."""
        scores = Scores(torch.cat([centroids, centroids.new_full((1, centroids.shape[1]), torch.inf)]))
        known = self._initial(centroids) if self.nearest is None else self.nearest
        found = Found(torch.empty_like(known), torch.empty(known.shape, device="cpu"))
        size = max(1, _pairs_in_block() // len(centroids))

        def task(index: int) -> None:
            part = slice(index * size, min((index + 1) * size, len(known)))
            num_points = (part.stop - part.start) * self.num_points // len(known)
            with _reported(progress, num_points * len(centroids)):
                nearest = self._search_leaves(part, known[part], scores)
                squares = measure_nearest(self.leaves[part].flatten(0, 1), centroids, nearest.flatten())
                found.nearest[part], found.squares[part] = nearest, squares.view_as(nearest)

        parallel_for(task, -(-len(known) // size))
        self.nearest = found.nearest
        nearest = torch.empty(self.num_points, dtype=torch.int64, device="cpu")
        squares = torch.empty(self.num_points, device="cpu")
        nearest[self.order], squares[self.order] = found.nearest.flatten(), found.squares.flatten()
        return Found(nearest, squares)

    def _initial(self, centroids: Tensor) -> Tensor:
        """Return the centroid nearest to the middle of each leaf, for all of its points."""
        middles = (self.low + self.high) / 2
        return measure_all(middles, centroids).nearest[:, None].expand(-1, self.leaves.shape[1])

    def _search_leaves(self, part: slice, known: Tensor, scores: Scores) -> Tensor:
        """Search leaves among the centroids within reach of their boxes; leaves that have as many go together.

        A box reaches as far as the farthest of its points is from the centroid known to be near it.
        """
        centroids, leaves = scores.centroids[:-1], self.leaves[part]
        farthest = measure_nearest(leaves.flatten(0, 1), centroids, known.flatten()).view_as(known).amax(1)
        is_near = (
            _squares_to_boxes(self.low[part], self.high[part], centroids) <= farthest[:, None] * (1 + SLACK) + TINY
        )
        counts, order = is_near.sum(1).sort(descending=True)
        nearest = torch.empty_like(known)
        first = 0
        while first < len(order):
            num_leaves = max(1, _pairs_in_block() // (int(counts[first]) * leaves.shape[1]))
            some = order[first : first + num_leaves]
            listed = _list_near(is_near[some], counts[first])
            pieces = torch.split(leaves[some], max(1, _pairs_in_block() // listed.numel()), dim=1)
            nearest[some] = torch.cat([scores.search_among(piece, listed) for piece in pieces], dim=1)
            first += num_leaves
        return nearest


def _list_near(is_near: Tensor, length: Tensor) -> Tensor:
    """Return the columns that are true in each row, `(n, length)`, in rising order; short rows end in the width."""
    rows, columns = is_near.nonzero(as_tuple=True)
    starts = is_near.sum(1).cumsum(0) - is_near.sum(1)
    listed = torch.full((len(is_near), int(length)), is_near.shape[1], device="cpu")
    listed[rows, torch.arange(len(rows), device="cpu") - starts[rows]] = columns
    return listed


def _sort_into_leaves(points: Tensor, order: Tensor, depth: int) -> Tensor:
    """Halve every node at the median of its widest dimension, `depth` times."""
    for level in range(depth):
        nodes = points[order].view(1 << level, -1, points.shape[1])
        widest = (nodes.amax(1) - nodes.amin(1)).argmax(1)
        values = nodes.gather(2, widest[:, None, None].expand(-1, nodes.shape[1], 1)).squeeze(2)
        order = order.view(1 << level, -1).gather(1, values.argsort(1)).flatten()
    return order


def _squares_to_boxes(low: Tensor, high: Tensor, centroids: Tensor) -> Tensor:
    """Return the `(num_boxes, k)` squared distances of all centroids to all boxes."""
    squares = torch.zeros(len(low), len(centroids), device="cpu")
    for lowest, highest, column in zip(low.unbind(1), high.unbind(1), centroids.unbind(1), strict=True):
        outside = torch.maximum(lowest[:, None] - column, column - highest[:, None]).clamp_(min=0)
        squares += outside.mul_(outside)
    return squares


class Scores:
    """Scores of CPU points, both around the middle of the centroids: near the origin they round less.

    Centroids at infinity stand for none.
    """

    def __init__(self, centroids: Tensor) -> None:
        self.centroids = centroids
        is_real = centroids[:, 0] < torch.inf
        self.middle = centroids[is_real].double().mean(0).float()
        self.shifted = torch.where(is_real[:, None], centroids - self.middle, 0)
        self.halves = self.shifted.square().sum(1).div_(2).masked_fill_(~is_real, torch.inf)
        self.longest = float(self.shifted.square().sum(1).max()) ** 0.5

    def search_all(self, points: Tensor, progress: Progress | None) -> Found:
        """Find the nearest centroid of every point, block by block, on several threads."""
        blocks = torch.split(points, max(1, _pairs_in_block() // len(self.centroids)))
        found = [Found(points[:0], points[:0])] * len(blocks)

        def task(index: int) -> None:
            with _reported(progress, len(blocks[index]) * len(self.centroids)):
                found[index] = self.search(blocks[index])

        parallel_for(task, len(blocks))
        return Found(*map(torch.cat, zip(*found, strict=True)))

    def search(self, rows: Tensor) -> Found:
        """Find the nearest centroid of each row `(n, width)` of one block."""
        scores = torch.addmm(self.halves, rows - self.middle, self.shifted.t(), alpha=-1)
        nearest, doubtful = self._settle(rows, scores)
        if len(doubtful):
            nearest[doubtful] = measure_all(rows[doubtful], self.centroids).nearest
        return Found(nearest, measure_nearest(rows, self.centroids, nearest))

    def search_among(self, leaves: Tensor, near: Tensor) -> Tensor:
        """Return the nearest, for `(leaves, n, width)` points, of the centroids near each leaf, `(leaves, m)`."""
        shifted = self.shifted[near].transpose(1, 2)
        scores = torch.baddbmm(self.halves[near].unsqueeze(1), leaves - self.middle, shifted, alpha=-1)
        nearest, doubtful = self._settle(leaves.flatten(0, 1), scores.flatten(0, 1))
        for some in torch.split(doubtful, max(1, PAIRS_IN_SMALL_BLOCK // near.shape[1])) if len(doubtful) else ():
            listed = near[some // leaves.shape[1]]
            nearest[some] = measure_block(leaves.flatten(0, 1)[some], self.centroids[listed]).nearest
        return near.gather(1, nearest.view(leaves.shape[:2]))

    def _settle(self, rows: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the index of each row's best score, and the rows where rounding may have chosen it."""
        best, nearest = scores.min(1)
        second = scores.scatter_(1, nearest[:, None], torch.inf).amin(1)
        norms = (rows - self.middle).square_().sum(1).sqrt_()
        doubts = (norms + self.longest).square_().mul_((2 * rows.shape[1] + 18) * ROUNDING).add_(TINY)
        return nearest, (~(second - best > 2 * doubts)).nonzero().squeeze(1)


def _pairs_in_block() -> int:
    return PAIRS_IN_BLOCK if torch.get_num_threads() == 1 else PAIRS_IN_SMALL_BLOCK


@contextmanager
def _reported(progress: Progress | None, num_pairs: int) -> Iterator[None]:
    """Report the pairs that are searched inside the block."""
    started = time.perf_counter()
    yield
    if progress is not None:
        progress.add(num_pairs, time.perf_counter() - started)
