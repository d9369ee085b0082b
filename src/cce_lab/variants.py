"""Variants of the paper's CCE, most of them from its appendix "What didn't work", as methods of their own.

`cce_lab.methods` registers them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cce.clustering import ClusterSettings, Quantizer, ResidualQuantizer, Sample, Source, piece_size
from cce.embeddings import ClusteredEmbedding, CodebookShape, Learned, Options, Shapes, StagedClustering, rules, whole
from cce.indexing import IndexModule, blocks


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
        rows = self.encode(vectors)
        self.codebooks = torch.stack(
            [_means(piece, rows[:, column], self.num_rows, sample.weights) for column, piece in enumerate(pieces)]
        )

    def encode(self, vectors: Tensor) -> Tensor:
        """The nearest cluster of each column's other columns."""
        pieces = vectors.chunk(self.num_columns, dim=1)
        columns = range(self.num_columns)
        nearest = [self.nearest(self._others(pieces, i), self.centroids[i]) for i in columns]
        return torch.stack(nearest, dim=1)

    def _others(self, pieces: tuple[Tensor, ...], column: int) -> Tensor:
        if self.num_columns == 1:  # there are no others
            return pieces[0].contiguous()
        return torch.cat([piece for other, piece in enumerate(pieces) if other != column], dim=1)


def _means(points: Tensor, rows: Tensor, num_rows: int, weights: Tensor | None) -> Tensor:
    """The weighted mean of the points of each row; zero for rows that have none."""
    mass = torch.ones_like(points[:, :1]) if weights is None else weights.to(points).unsqueeze(-1)
    weighted = torch.cat([points * mass, mass], dim=1).double()
    sums = weighted.new_zeros(num_rows, weighted.shape[1]).index_add_(0, rows, weighted)
    return (sums[:, :-1] / sums[:, -1:].clamp(min=1e-30)).to(points.dtype)


class CircularEmbedding(ClusteredEmbedding):
    """CCE whose columns are clustered by the others; their pointers become alike ("table collapse")."""

    method = "cce-circular"

    def quantizer(self, settings: ClusterSettings) -> CircularQuantizer:
        return CircularQuantizer(self.num_columns, self.num_rows, settings)


class SummedEmbedding(ClusteredEmbedding):
    """CCE whose pieces are as wide as the vectors and add up; each column is clustered by what others leave over."""

    method = "cce-sum"

    @classmethod
    def shape_of(cls, embedding_dim: int, arguments: Mapping[str, Any]) -> CodebookShape:
        """Tables of full width."""
        return super().shape_of(embedding_dim, arguments)._replace(width=embedding_dim)

    def quantizer(self, settings: ClusterSettings) -> ResidualQuantizer:
        return ResidualQuantizer(self.num_columns, self.num_rows, settings)


class HelpersEmbedding(ClusteredEmbedding):
    """CCE with `num_helpers` helper tables in each column; the paper has 1, and saw no effect of more."""

    method = "cce-helpers"
    option_checks = rules(**ClusteredEmbedding.option_checks, num_helpers=whole(0))

    def __init__(self, num_embeddings: int, embedding_dim: int, *, num_helpers: int = 2, **options: Any) -> None:
        del num_helpers  # `shape_of` has it
        super().__init__(num_embeddings, embedding_dim, **options)

    @classmethod
    def shape_of(cls, embedding_dim: int, arguments: Mapping[str, Any]) -> CodebookShape:
        """So many tables in each column, and the clustered one."""
        shape = super().shape_of(embedding_dim, arguments)
        return shape._replace(num_tables=1 + arguments["num_helpers"])


class ResidualHelpersEmbedding(ClusteredEmbedding):
    """CCE whose helper rows begin at the mean of what a clustering left over of the ids that hash to them."""

    method = "cce-residual-helpers"

    def start_helpers(self, learned: Learned, source: Source) -> None:
        """One pass over all ids, block by block."""
        helpers = learned.tables[:, 1]  # (num_columns, num_rows, width)
        sums, counts = torch.zeros_like(helpers), torch.zeros_like(helpers[..., :1])
        size = min(self.settings.block_size, piece_size(self.embedding_dim))
        for ids in blocks(learned.pointers.num_ids, size):
            rows = learned.helper(ids.to(sums.device))  # (n, num_columns)
            found = learned.vectors(ids, learned.pointers.read(ids), self.embedding_dim)
            left = (source(ids).to(sums) - found).view(len(ids), self.num_columns, self.width)
            for column in range(self.num_columns):
                sums[column].index_add_(0, rows[:, column], left[:, column])
                counts[column].index_add_(0, rows[:, column], torch.ones_like(left[:, column, :1]))
        helpers.copy_(sums / counts.clamp(min=1))


class ResizedEmbedding(ClusteredEmbedding):
    """CCE with tables of another shape from some clustering on."""

    later_shape: CodebookShape  # from then on

    @property
    def next_shape(self) -> CodebookShape:
        """The first clustering makes it so."""
        return self.later_shape

    def become(self, learned: Learned) -> None:
        """Take the new shape first; the codebook keeps its memory if it keeps its size."""
        self._resize(CodebookShape(*learned.tables.shape))
        super().become(learned)

    def _resize(self, shape: CodebookShape) -> None:
        num_hashes = shape.num_columns * (shape.num_tables - 1)
        if (num_hashes, shape.num_rows) != (self.helper.num_hashes, self.helper.num_rows):
            self.helper.num_hashes, self.helper.num_rows = num_hashes, shape.num_rows
            self.helper.seeds = self.helper.seeds[:num_hashes].clone()
        if self.codebook.shape != shape.matrix:
            self.codebook.data = self.codebook.new_empty(shape.matrix)
        self.codebook_shape = shape

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """A checkpoint may be of the later shape."""
        codebook, seeds = state_dict.get(prefix + "codebook"), state_dict.get(prefix + "helper.seeds")
        later = self.later_shape
        lengths = later.matrix[0], later.num_columns * (later.num_tables - 1)
        if codebook is not None and seeds is not None and (len(codebook), len(seeds)) == lengths:
            self._resize(later)
            self.assignments.resize(later.num_rows)
        super()._load_from_state_dict(state_dict, prefix, *args)


class FirstRowsEmbedding(ResizedEmbedding):
    """CCE whose tables have `first_factor` times `num_rows` rows until the first clustering."""

    method = "cce-first-rows"
    option_checks = rules(**ResizedEmbedding.option_checks, first_factor=whole(1))

    def __init__(self, num_embeddings: int, embedding_dim: int, *, first_factor: int = 4, **options: Any) -> None:
        super().__init__(num_embeddings, embedding_dim, **options)
        self.later_shape = self.codebook_shape._replace(num_rows=self.num_rows // first_factor)

    @classmethod
    def shape_of(cls, embedding_dim: int, arguments: Mapping[str, Any]) -> CodebookShape:
        """The larger tables of the start."""
        shape = super().shape_of(embedding_dim, arguments)
        return shape._replace(num_rows=arguments["first_factor"] * shape.num_rows)

    @classmethod
    def size_for_budget(cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Options) -> Options:
        """The budget is for what is served: the tables after the first clustering."""
        return super().size_for_budget(num_embeddings, embedding_dim, num_params, options | {"first_factor": 1})


class SettlingEmbedding(ResizedEmbedding):
    """CCE without helpers, and with twice the rows, from clustering `settle_after` on; it is not clustered again.

    The paper's text speaks of it as "Step 3, where we follow the CE concat method"; its Algorithm 3 keeps the helpers.
    """

    method = "cce-settle"
    option_checks = rules(**ResizedEmbedding.option_checks, settle_after=whole(1))

    def __init__(self, num_embeddings: int, embedding_dim: int, *, settle_after: int = 1, **options: Any) -> None:
        super().__init__(num_embeddings, embedding_dim, **options)
        columns, tables, rows, width = self.codebook_shape
        self.later_shape = CodebookShape(columns, 1, tables * rows, width)  # one table, with the rows of both
        self.settle_after = settle_after
        self.clusterings = ClusteringCount()

    @property
    def next_shape(self) -> CodebookShape:
        """As it is until the clustering at which it settles."""
        return self.later_shape if int(self.clusterings.count) + 1 >= self.settle_after else self.codebook_shape

    @property
    def can_cluster(self) -> bool:
        """Until it has settled."""
        return super().can_cluster and self.num_helpers > 0

    def stage(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> StagedClustering:
        """A clustering, of which the last makes the table settle."""
        if not self.num_helpers:
            raise ValueError(f"settle_after={self.settle_after} clusterings were made: the table has settled.")
        return super().stage(counts=counts, generator=generator)

    def become(self, learned: Learned) -> None:
        """Count the clustering."""
        super().become(learned)
        self.clusterings.count += 1

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Options) -> Shapes:
        """With the number of clusterings."""
        return replace(super().shapes(num_embeddings, embedding_dim, arguments), other_nbytes=4)


class ClusteringCount(IndexModule):
    """The number of clusterings of a table so far, saved with it."""

    index_state = ("count",)

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.zeros(1, dtype=torch.int32, device="cpu")


VARIANTS = (
    CircularEmbedding,
    FirstRowsEmbedding,
    HelpersEmbedding,
    ResidualHelpersEmbedding,
    SettlingEmbedding,
    SummedEmbedding,
)
