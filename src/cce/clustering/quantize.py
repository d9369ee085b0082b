"""Learn H: point every id of a vocabulary at rows that k-means finds for it.

One engine serves product quantisation, learning to collide and CCE. It never sees the whole table: vectors come from a
`source`, a function from ids to vectors, first for a sample to fit on, then block by block to encode.

Jégou, Douze and Schmid, "Product quantization for nearest neighbor search" (2011); residual (additive) quantisation:
Chen, Guan and Wang (2010).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cce.checks import check_choice, check_range
from cce.clustering.kmeans import kmeans
from cce.clustering.nearest import nearest_centroid
from cce.clustering.sampling import sample_ids

Source = Callable[[Tensor], Tensor]  # ids (n) → vectors (n, dim)


@dataclass(frozen=True)
class ClusterSettings:
    """How k-means is run: the paper's settings unless told otherwise."""

    num_iterations: int = 50  # paper, "K-means"
    points_per_row: int = 256  # paper: at most 256 sampled ids for each centroid
    start: str = "random"
    backend: str = "auto"
    block_size: int = 1 << 16  # ids encoded at a time

    def __post_init__(self) -> None:
        check_range("num_iterations", self.num_iterations, 1, 2**31)
        check_range("points_per_row", self.points_per_row, 1, 2**31)
        check_range("block_size", self.block_size, 1, 2**31)
        check_choice("start", self.start, ("random", "k-means++"))


class Quantizer(ABC):
    """Codebooks fitted to a sample of vectors, and the nearest entries of any vector."""

    codebooks: Tensor  # (num_columns, num_rows, width)
    inertias: tuple[float, ...]  # of each column's k-means at its end

    def __init__(self, num_columns: int, num_rows: int, settings: ClusterSettings) -> None:
        self.num_columns = num_columns
        self.num_rows = num_rows
        self.settings = settings

    @abstractmethod
    def fit(self, vectors: Tensor, generator: torch.Generator | None) -> None:
        """Learn the codebooks from vectors `(n, dim)`."""

    @abstractmethod
    def encode(self, vectors: Tensor) -> Tensor:
        """Rows `(n, num_columns)` of the codebooks for vectors `(n, dim)`."""

    def cluster(self, points: Tensor, generator: torch.Generator | None) -> tuple[Tensor, float]:
        """Centroids of `points`, and the inertia before the last step."""
        fitted = kmeans(
            points,
            self.num_rows,
            num_iterations=self.settings.num_iterations,
            start=self.settings.start,
            generator=generator,
            backend=self.settings.backend,
        )
        return fitted.centroids, fitted.inertias[-1]

    def nearest(self, points: Tensor, centroids: Tensor) -> Tensor:
        """The nearest of `centroids` for each of `points`."""
        return nearest_centroid(points, centroids, backend=self.settings.backend)


class ProductQuantizer(Quantizer):
    """Every column of the vectors is clustered by itself."""

    def fit(self, vectors: Tensor, generator: torch.Generator | None) -> None:
        """k-means of each column."""
        fits = [self.cluster(piece.contiguous(), generator) for piece in vectors.chunk(self.num_columns, dim=1)]
        self.codebooks = torch.stack([centroids for centroids, _ in fits])
        self.inertias = tuple(inertia for _, inertia in fits)

    def encode(self, vectors: Tensor) -> Tensor:
        """The nearest row of each column's codebook."""
        pieces = vectors.chunk(self.num_columns, dim=1)
        nearest = [self.nearest(p.contiguous(), c) for p, c in zip(pieces, self.codebooks, strict=True)]
        return torch.stack(nearest, dim=1)


class ResidualQuantizer(Quantizer):
    """Every codebook is as wide as the vectors and is fitted to what the ones before it leave over."""

    def fit(self, vectors: Tensor, generator: torch.Generator | None) -> None:
        """k-means of the vectors, then of the residuals, and so on."""
        codebooks, inertias = [], []
        for _ in range(self.num_columns):
            centroids, inertia = self.cluster(vectors, generator)
            vectors = vectors - centroids[self.nearest(vectors, centroids)]
            codebooks.append(centroids)
            inertias.append(inertia)
        self.codebooks, self.inertias = torch.stack(codebooks), tuple(inertias)

    def encode(self, vectors: Tensor) -> Tensor:
        """The nearest row of the first codebook, then of the second to the rest, and so on."""
        rows = []
        for centroids in self.codebooks:
            nearest = self.nearest(vectors, centroids)
            vectors = vectors - centroids[nearest]
            rows.append(nearest)
        return torch.stack(rows, dim=1)


class CircularQuantizer(Quantizer):
    """Every column's ids are grouped by what the *other* columns say of them.

    The paper's appendix tried this and saw the columns' pointers become alike ("table collapse").
    """

    def fit(self, vectors: Tensor, generator: torch.Generator | None) -> None:
        """k-means of the other columns, then the mean of the column's own pieces in each cluster."""
        pieces = vectors.chunk(self.num_columns, dim=1)
        fits = [self.cluster(self._others(pieces, column), generator) for column in range(self.num_columns)]
        self.centroids = [centroids for centroids, _ in fits]
        self.inertias = tuple(inertia for _, inertia in fits)
        rows = self.encode(vectors)
        self.codebooks = torch.stack(
            [_means(piece, rows[:, column], self.num_rows) for column, piece in enumerate(pieces)]
        )

    def encode(self, vectors: Tensor) -> Tensor:
        """The nearest cluster of each column's other columns."""
        pieces = vectors.chunk(self.num_columns, dim=1)
        nearest = [self.nearest(self._others(pieces, i), self.centroids[i]) for i in range(self.num_columns)]
        return torch.stack(nearest, dim=1)

    def _others(self, pieces: tuple[Tensor, ...], column: int) -> Tensor:
        if self.num_columns == 1:  # there are no others
            return pieces[0].contiguous()
        return torch.cat([piece for other, piece in enumerate(pieces) if other != column], dim=1)


@torch.no_grad()
def fit_to_sample(
    quantizer: Quantizer, source: Source, num_ids: int, *, generator: torch.Generator | None = None
) -> None:
    """Fit on the vectors of at most `points_per_row · num_rows` sampled ids."""
    num_samples = quantizer.settings.points_per_row * quantizer.num_rows
    ids = sample_ids(num_ids, num_samples, generator=generator)
    quantizer.fit(source(ids).float(), generator)


def _means(points: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """The mean of the points of each row; zero for rows that have none."""
    sums = points.new_zeros(num_rows, points.shape[1], dtype=torch.float64).index_add_(0, rows, points.double())
    counts = torch.bincount(rows, minlength=num_rows).clamp(min=1).unsqueeze(-1)
    return (sums / counts).to(points.dtype)
