"""Learn H: point every id of a vocabulary at rows that k-means finds for it.

One engine serves product quantisation, learning to collide and CCE. It never sees the whole table: vectors come from a
`source`, a function from ids to vectors, first for a sample to fit on, then block by block to encode.

Jégou, Douze and Schmid, "Product quantization for nearest neighbor search" (2011); residual (additive) quantisation:
Chen, Guan and Wang (2010).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from cce.checks import check_range
from cce.clustering.kmeans import ClusterSettings, checked_settings, kmeans, nearest_centroid
from cce.clustering.sampling import Sample, Source, vectors_of
from cce.compiled import parallel_for
from cce.indexing import PointerStore, blocks

BLOCK = 1 << 22  # values encoded at a time: 16 MB
SMALL = 1 << 20  # values of a sample whose columns are clustered side by side


class Quantizer(ABC):
    """Codebooks fitted to a sample of vectors, and the nearest entries of any vector."""

    codebooks: Tensor  # (num_columns, num_rows, width)
    inertias: tuple[float, ...]  # of each column's k-means at its end

    def __init__(self, num_columns: int, num_rows: int, settings: ClusterSettings) -> None:
        check_range("num_columns", num_columns, 1, 2**31)
        check_range("num_rows", num_rows, 1, 2**31)
        self.num_columns = num_columns
        self.num_rows = num_rows
        self.settings = checked_settings(settings)

    @abstractmethod
    def fit(self, sample: Sample, generator: torch.Generator | None) -> None:
        """Learn the codebooks from the vectors of a sample."""

    @abstractmethod
    def encode(self, vectors: Tensor) -> Tensor:
        """Rows `(n, num_columns)` of the codebooks for vectors `(n, dim)`."""

    def cluster(
        self, points: Tensor, weights: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Tensor, float]:
        """Centroids of the `points` of a column, and the inertia before the last step."""
        fitted = kmeans(
            points,
            self.num_rows,
            sample_weight=weights,
            max_iter=self.settings.max_iter,
            tol=self.settings.tol,
            init=self.settings.init,
            generator=generator,
            backend=self.settings.backend,
        )
        return fitted.centroids, fitted.inertias[-1]

    def cluster_columns(
        self, points_of: Callable[[int], Tensor], sample: Sample, generator: torch.Generator | None
    ) -> list[tuple[Tensor, float]]:
        """Cluster the points of every column, each with its own random numbers.

        Small columns run in parallel over the cores. Large ones come one after another, since k-means itself then uses
        all cores, and only one column of the sample needs to be in memory.
        """
        seeds = torch.randint(2**62, (self.num_columns,), generator=generator, device="cpu").tolist()
        fits: dict[int, tuple[Tensor, float]] = {}

        def fit(column: int) -> None:
            own = torch.Generator().manual_seed(seeds[column])
            fits[column] = self.cluster(points_of(column), sample.weights, own)

        if len(sample.ids) * sample.dim <= SMALL:
            parallel_for(fit, self.num_columns)
        else:
            for column in range(self.num_columns):
                fit(column)
        return [fits[column] for column in range(self.num_columns)]

    def nearest(self, points: Tensor, centroids: Tensor) -> Tensor:
        """The nearest of `centroids` for each of `points`."""
        return nearest_centroid(points, centroids, backend=self.settings.backend)


class ProductQuantizer(Quantizer):
    """Every column of the vectors is clustered by itself."""

    def fit(self, sample: Sample, generator: torch.Generator | None) -> None:
        """k-means of each column."""

        def column_of(column: int) -> Tensor:
            return sample.vectors(lambda whole: whole.chunk(self.num_columns, dim=1)[column])

        fits = self.cluster_columns(column_of, sample, generator)
        self.codebooks = torch.stack([centroids for centroids, _ in fits])
        self.inertias = tuple(inertia for _, inertia in fits)

    def encode(self, vectors: Tensor) -> Tensor:
        """The nearest row of each column's codebook."""
        pieces = vectors.chunk(self.num_columns, dim=1)
        nearest = [self.nearest(p.contiguous(), c) for p, c in zip(pieces, self.codebooks, strict=True)]
        return torch.stack(nearest, dim=1)


class ResidualQuantizer(Quantizer):
    """Every codebook is as wide as the vectors and is fitted to what the ones before it leave over."""

    def fit(self, sample: Sample, generator: torch.Generator | None) -> None:
        """k-means of the vectors, then of the residuals, and so on."""
        vectors = sample.vectors()
        codebooks, inertias = [], []
        for _ in range(self.num_columns):
            centroids, inertia = self.cluster(vectors, sample.weights, generator)
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


def encode_all(quantizer: Quantizer, source: Source, num_ids: int, dim: int) -> PointerStore:
    """The rows of all ids below `num_ids`, found block by block."""
    pointers = PointerStore(num_ids, quantizer.num_columns, quantizer.num_rows)
    for ids in blocks(num_ids, min(quantizer.settings.block_size, max(1, BLOCK // dim))):
        pointers.write(int(ids[0]), quantizer.encode(vectors_of(source, ids, dim)))
    return pointers
