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

from cce.checks import check_choice, check_flag, check_range, check_type
from cce.clustering.kmeans import kmeans
from cce.clustering.nearest import BACKENDS, nearest_centroid
from cce.clustering.progress import Progress
from cce.clustering.sampling import sample_ids
from cce.compiled import parallel_for
from cce.indexing import smallest_unsigned
from cce.indexing.assignments import blocks

PIECE = 1 << 19  # numbers that a source is asked for at a time
BLOCK = 1 << 22  # numbers encoded at a time: 16 MB
SMALL = 1 << 20  # numbers of a sample whose columns are clustered side by side
Source = Callable[[Tensor], Tensor]  # ids (n) → vectors (n, dim)


@dataclass(frozen=True)
class ClusterSettings:
    """How k-means is run: the paper's settings unless told otherwise."""

    num_iterations: int = 50  # paper, "K-means"
    points_per_row: int = 256  # paper: at most 256 sampled ids for each centroid
    start: str = "random"
    sampling: str = "uniform"  # or "frequency": ids are sampled by how often they occur
    weighted: bool = False  # k-means weighs a sampled id by how often it occurs
    backend: str = "auto"
    block_size: int = 1 << 18  # ids encoded at a time, at most

    def __post_init__(self) -> None:
        check_range("num_iterations", self.num_iterations, 1, 2**31)
        check_range("points_per_row", self.points_per_row, 1, 2**31)
        check_range("block_size", self.block_size, 1, 2**31)
        check_flag("weighted", self.weighted)
        check_choice("start", self.start, ("random", "k-means++"))
        check_choice("backend", self.backend, BACKENDS)
        check_choice("sampling", self.sampling, ("uniform", "frequency"))

    @property
    def needs_counts(self) -> bool:
        """Whether it must be known how often ids occur."""
        return self.weighted or self.sampling == "frequency"


def checked_settings(settings: ClusterSettings | None) -> ClusterSettings:
    """`settings`, or the paper's; refuse anything else, such as a dictionary."""
    if settings is None:
        return ClusterSettings()
    check_type("settings", settings, ClusterSettings, "ClusterSettings")
    return settings


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
    def encode(self, vectors: Tensor, progress: Progress | None = None) -> Tensor:
        """Rows `(n, num_columns)` of the codebooks for vectors `(n, dim)`."""

    def cluster(
        self, points: Tensor, weights: Tensor | None, generator: torch.Generator | None, progress: Progress
    ) -> tuple[Tensor, float]:
        """Centroids of `points`, and the inertia before the last step."""
        fitted = kmeans(
            points,
            self.num_rows,
            weights=weights,
            num_iterations=self.settings.num_iterations,
            start=self.settings.start,
            generator=generator,
            backend=self.settings.backend,
            progress=progress,
        )
        return fitted.centroids, fitted.inertias[-1]

    def cluster_columns(
        self, points_of: Callable[[int], Tensor], sample: Sample, generator: torch.Generator | None
    ) -> list[tuple[Tensor, float]]:
        """Cluster the points of every column, each with random numbers of its own.

        Small columns run in parallel over the cores. Large ones come one after another, since k-means itself then uses
        all cores, and only one column of the sample needs to be in memory.
        """
        seeds = torch.randint(2**62, (self.num_columns,), generator=generator, device="cpu").tolist()
        fits: dict[int, tuple[Tensor, float]] = {}

        def fit(column: int) -> None:
            own = torch.Generator().manual_seed(seeds[column])
            fits[column] = self.cluster(points_of(column), sample.weights, own, progress)

        with self.fit_progress(sample) as progress:
            if len(sample.ids) * sample.dim <= SMALL:
                parallel_for(fit, self.num_columns)
            else:
                for column in range(self.num_columns):
                    fit(column)
        return [fits[column] for column in range(self.num_columns)]

    def fit_progress(self, sample: Sample) -> Progress:
        """Reports the work of the k-means of all columns."""
        num_points, pairs = len(sample.ids), len(sample.ids) * self.num_rows * self.settings.num_iterations
        work = f"{self.num_columns} times k-means of {num_points:,} points and {self.num_rows:,} clusters"
        return Progress(work, self.num_columns * pairs)

    def encode_progress(self, num_ids: int) -> Progress:
        """Reports the work of encoding so many ids."""
        work = f"search of {num_ids:,} ids among {self.num_rows:,} rows of {self.num_columns} columns"
        return Progress(work, self.num_columns * num_ids * self.num_rows)

    def nearest(self, points: Tensor, centroids: Tensor, progress: Progress | None = None) -> Tensor:
        """The nearest of `centroids` for each of `points`."""
        return nearest_centroid(points, centroids, backend=self.settings.backend, progress=progress)


class ProductQuantizer(Quantizer):
    """Every column of the vectors is clustered by itself."""

    def fit(self, sample: Sample, generator: torch.Generator | None) -> None:
        """k-means of each column."""

        def column_of(column: int) -> Tensor:
            return sample.vectors(lambda whole: whole.chunk(self.num_columns, dim=1)[column])

        fits = self.cluster_columns(column_of, sample, generator)
        self.codebooks = torch.stack([centroids for centroids, _ in fits])
        self.inertias = tuple(inertia for _, inertia in fits)

    def encode(self, vectors: Tensor, progress: Progress | None = None) -> Tensor:
        """The nearest row of each column's codebook."""
        pieces = vectors.chunk(self.num_columns, dim=1)
        nearest = [self.nearest(p.contiguous(), c, progress) for p, c in zip(pieces, self.codebooks, strict=True)]
        return torch.stack(nearest, dim=1)


class ResidualQuantizer(Quantizer):
    """Every codebook is as wide as the vectors and is fitted to what the ones before it leave over."""

    def fit(self, sample: Sample, generator: torch.Generator | None) -> None:
        """k-means of the vectors, then of the residuals, and so on."""
        vectors = sample.vectors()
        codebooks, inertias = [], []
        with self.fit_progress(sample) as progress:
            for _ in range(self.num_columns):
                centroids, inertia = self.cluster(vectors, sample.weights, generator, progress)
                vectors = vectors - centroids[self.nearest(vectors, centroids, progress)]
                codebooks.append(centroids)
                inertias.append(inertia)
        self.codebooks, self.inertias = torch.stack(codebooks), tuple(inertias)

    def encode(self, vectors: Tensor, progress: Progress | None = None) -> Tensor:
        """The nearest row of the first codebook, then of the second to the rest, and so on."""
        rows = []
        for centroids in self.codebooks:
            nearest = self.nearest(vectors, centroids, progress)
            vectors = vectors - centroids[nearest]
            rows.append(nearest)
        return torch.stack(rows, dim=1)


class CircularQuantizer(Quantizer):
    """Every column's ids are grouped by what the *other* columns say of them.

    The paper's appendix tried this and saw the columns' pointers become alike ("table collapse").
    """

    def fit(self, sample: Sample, generator: torch.Generator | None) -> None:
        """k-means of the other columns, then the mean of the column's own pieces in each cluster."""
        vectors = sample.vectors()
        pieces = vectors.chunk(self.num_columns, dim=1)
        fits = self.cluster_columns(lambda column: self._others(pieces, column), sample, generator)
        self.centroids = [centroids for centroids, _ in fits]
        self.inertias = tuple(inertia for _, inertia in fits)
        with self.encode_progress(len(vectors)) as progress:
            rows = self.encode(vectors, progress)
        self.codebooks = torch.stack(
            [_means(piece, rows[:, column], self.num_rows, sample.weights) for column, piece in enumerate(pieces)]
        )

    def encode(self, vectors: Tensor, progress: Progress | None = None) -> Tensor:
        """The nearest cluster of each column's other columns."""
        pieces = vectors.chunk(self.num_columns, dim=1)
        columns = range(self.num_columns)
        nearest = [self.nearest(self._others(pieces, i), self.centroids[i], progress) for i in columns]
        return torch.stack(nearest, dim=1)

    def _others(self, pieces: tuple[Tensor, ...], column: int) -> Tensor:
        if self.num_columns == 1:  # there are no others
            return pieces[0].contiguous()
        return torch.cat([piece for other, piece in enumerate(pieces) if other != column], dim=1)


@dataclass(frozen=True)
class Sample:
    """Ids to fit on, with weights or without; their vectors `(n, dim)` are fetched from the source when needed."""

    source: Source
    ids: Tensor
    dim: int
    weights: Tensor | None = None

    def vectors(self, part: Callable[[Tensor], Tensor] = lambda whole: whole) -> Tensor:
        """All vectors, or a part of each, contiguous and in float32."""
        return vectors_of(lambda ids: part(self.source(ids)), self.ids, self.dim).contiguous()


def draw_sample(
    num_ids: int,
    num_rows: int,
    settings: ClusterSettings,
    *,
    counts: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor | None]:
    """At most `points_per_row · num_rows` ids to fit on, and their weights where the settings ask for weights."""
    if settings.needs_counts and counts is None:
        raise ValueError("counts must be given, or tracked by the table, for these settings: how often each id occurs.")
    if counts is not None and len(counts) < num_ids:
        raise ValueError(f"counts must have shape ({num_ids},), one count per id, got {tuple(counts.shape)}.")
    counts = counts[:num_ids] if counts is not None else None
    by_frequency = counts if settings.sampling == "frequency" else None
    ids = sample_ids(num_ids, settings.points_per_row * num_rows, counts=by_frequency, generator=generator)
    if not settings.weighted or counts is None or not bool((counts[ids] > 0).any()):
        return ids, None
    return ids, counts[ids].float()


def vectors_of(source: Source, ids: Tensor, dim: int) -> Tensor:
    """The vectors of ids in float32, asked for in pieces of few numbers: what a source needs on the way stays small."""
    first, *rest = torch.split(ids, piece_size(dim))
    vectors = source(first).float()
    if not rest:
        return vectors
    whole = vectors.new_empty(len(ids), vectors.shape[1])
    whole[: len(first)] = vectors
    start = len(first)
    for piece in rest:
        whole[start : start + len(piece)] = source(piece)
        start += len(piece)
    return whole


def piece_size(dim: int) -> int:
    """How many ids of `dim` numbers a source is asked for at a time."""
    return max(1, PIECE // dim)


def encode_all(quantizer: Quantizer, source: Source, num_ids: int, dim: int) -> Tensor:
    """The rows of all ids below `num_ids`, `(num_ids, num_columns)` in the smallest type, block by block."""
    dtype = smallest_unsigned(quantizer.num_rows)
    pointers = torch.empty(num_ids, quantizer.num_columns, dtype=dtype, device="cpu")
    with quantizer.encode_progress(num_ids) as progress:
        for ids in blocks(num_ids, min(quantizer.settings.block_size, max(1, BLOCK // dim))):
            rows = quantizer.encode(vectors_of(source, ids, dim), progress)
            pointers[int(ids[0]) : int(ids[-1]) + 1] = rows.cpu().to(pointers.dtype)
    return pointers


def _means(points: Tensor, rows: Tensor, num_rows: int, weights: Tensor | None) -> Tensor:
    """The weighted mean of the points of each row; zero for rows that have none."""
    mass = torch.ones_like(points[:, :1]) if weights is None else weights.to(points).unsqueeze(-1)
    weighted = torch.cat([points * mass, mass], dim=1).double()
    sums = weighted.new_zeros(num_rows, weighted.shape[1]).index_add_(0, rows, weighted)
    return (sums[:, :-1] / sums[:, -1:].clamp(min=1e-30)).to(points.dtype)
