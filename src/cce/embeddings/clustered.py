"""Clustered Compositional Embeddings as published: hashing and clustering in turns, to learn which ids share rows.

Tsang and Ahle, "Clustering the sketch: dynamic compression for embedding tables" (NeurIPS 2023), Algorithm 3. Piece
`i` of id `x` is `M_i[h_i(x)] + M'_i[h'_i(x)]`: a row it was clustered to and a row of a helper table it is hashed to.
The helper lets ids of one cluster grow apart again, so that the next clustering can do better than the last.

A variant of the algorithm is a subclass. It overrides `shape_of` (other tables at the start), `next_shape` (other
tables from a clustering on), `quantizer` (how ids are grouped) or `start_helpers` (where helpers begin).
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Unpack

import torch
from torch import Tensor

from cce.checks import arguments_of
from cce.clustering import ClusterSettings, ProductQuantizer, Quantizer, Source, checked_settings
from cce.embeddings.base import check_weight
from cce.embeddings.cluster_step import Learned, stage_clustering
from cce.embeddings.clusterable import Clusterable, StagedClustering, check_clustering
from cce.embeddings.compositional import piece_shape
from cce.embeddings.initialization import output_variance
from cce.embeddings.linear import LinearEmbedding
from cce.embeddings.options import CommonOptions, Options, choice, optional, rules, whole
from cce.embeddings.sizing import Shapes
from cce.indexing import Assignments, HashedRows, LearnedRows, MultiplyShift, RowSource
from cce.signals import uninterrupted

Init = Literal["authors", "paper"]
SIZES = ("num_embeddings", "embedding_dim")  # of the constructor's arguments, those that are no options


class CodebookShape(NamedTuple):
    """The tables of a codebook, one below the other: for each column the clustered one and then its helpers."""

    num_columns: int
    num_tables: int  # of a column
    num_rows: int  # of a table
    width: int  # of a row

    @property
    def matrix(self) -> tuple[int, int]:
        """The shape of the codebook."""
        return self.num_columns * self.num_tables * self.num_rows, self.width

    def row_numbers(self) -> Tensor:
        """The rows of the codebook, table by table: `(num_columns, num_tables, num_rows)`."""
        return torch.arange(self.matrix[0], device="cpu").view(self[:3])


class ClusteredEmbedding(LinearEmbedding, Clusterable):
    """`T[x] = [… | M_i[h_i(x)] + M'_i[h'_i(x)] | …]` with learned `h`, hashed `h'`, `num_rows` rows in each table.

    num_columns: 4 in the paper, and by default, or the divisor of `embedding_dim` nearest to it.
    settings: of k-means; by default the paper's.
    init: where both tables start. "authors": U(±1/√embedding_dim), as in the authors' code, which made the published
        results; a vector has twice the variance of other methods' at "uniform". "paper": N(0, 1), as in its text.
    start_scale: the scale of vectors at the start as other methods have it, instead of `init`.
    """

    method = "cce-paper"
    option_checks = rules(
        num_rows=whole(1),
        num_columns=optional(whole(1)),
        init=choice("authors", "paper"),
    )

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_rows: int,
        num_columns: int | None = None,
        settings: ClusterSettings | None = None,
        init: Init = "authors",
        **common: Unpack[CommonOptions],
    ) -> None:
        del num_rows, num_columns  # `shape_of` has them, with whatever a subclass was given
        super().__init__(num_embeddings, embedding_dim, **common)
        options = {name: value for name, value in arguments_of(self).items() if name not in SIZES}
        options = self.complete_options(options)
        self.codebook_shape = self.shape_of(embedding_dim, options)
        self.init = init if common.get("start_scale") is None else None
        self.settings = checked_settings(settings)
        self.assignments = Assignments(num_embeddings, self.num_columns, self.num_rows, device="meta")
        self.helper = MultiplyShift(self.num_columns * self.num_helpers, self.num_rows, device="meta")
        self.make_parameters(options, common)

    @torch.no_grad()
    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Variances of independent terms add up; the authors drew from a uniform distribution."""
        if self.init != "authors":
            super().init_parameters(generator)
            return
        bound = 1 / math.sqrt(self.embedding_dim)
        drawn = torch.rand(self.codebook.shape, generator=generator, dtype=torch.float32, device="cpu")
        self.codebook.copy_(drawn.mul_(2 * bound).sub_(bound))

    @classmethod
    def shape_of(cls, embedding_dim: int, arguments: Mapping[str, Any]) -> CodebookShape:
        """The tables at the start, for complete arguments of the constructor."""
        num_columns, width = piece_shape(embedding_dim, arguments["num_columns"])
        return CodebookShape(num_columns, 2, arguments["num_rows"], width)

    @property
    def next_shape(self) -> CodebookShape:
        """The tables after the next clustering."""
        return self.codebook_shape

    def quantizer(self, settings: ClusterSettings) -> Quantizer:
        """What groups the ids of each column, into as many rows as a clustering makes."""
        return ProductQuantizer(self.num_columns, self.next_shape.num_rows, settings)

    def start_helpers(self, learned: Learned, source: Source) -> None:
        """Leave the helpers of a clustering at zero; a variant may write to their rows in `learned.tables`."""

    @property
    def num_columns(self) -> int:
        """Pointers of an id."""
        return self.codebook_shape.num_columns

    @property
    def num_helpers(self) -> int:
        """Helper tables of a column."""
        return self.codebook_shape.num_tables - 1

    @property
    def num_rows(self) -> int:
        """Rows of each table."""
        return self.codebook_shape.num_rows

    @property
    def width(self) -> int:
        """Values of a row: a part of the vector, or all of them where pieces add up."""
        return self.codebook_shape.width

    @property
    def slots(self) -> tuple[int, int]:
        """Pieces of a vector that lie side by side, and rows that are added to make one."""
        num_pieces = self.embedding_dim // self.width
        return num_pieces, self.num_columns * (1 + self.num_helpers) // num_pieces

    @property
    def can_cluster(self) -> bool:
        """At any time."""
        return True

    @property
    def tables(self) -> Tensor:
        """The codebook, table by table: `(num_columns, 1 + num_helpers, num_rows, width)`, the clustered one first."""
        return self.codebook.detach().view(self.codebook_shape)

    def sources(self) -> tuple[int, int, list[RowSource]]:
        """A learned row and a hashed row of each helper, for each column."""
        num_tables, num_rows = 1 + self.num_helpers, self.num_rows
        clustered = range(0, self.num_columns * num_tables, num_tables)
        helpers = [table for table in range(self.num_columns * num_tables) if table % num_tables]
        sources: list[RowSource] = [
            LearnedRows(self.assignments, clustered, [table * num_rows for table in clustered]),
            HashedRows(self.helper, helpers, [table * num_rows for table in helpers]),
        ]
        return (*self.slots, sources)

    @torch.no_grad()
    def stage(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> StagedClustering:
        """Compute a clustering of the table as it is now (Algorithm 3, "Cluster")."""
        check_clustering(self, counts, self.num_embeddings, generator)
        device = self.codebook.device
        return stage_clustering(self, lambda ids: self.embed(ids.to(device)), counts, generator)

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Seed by product quantisation: pointers and rows from a trained table, helpers as after a clustering."""
        check_weight(self, weight)
        stage_clustering(self, lambda ids: weight[ids.to(weight.device)], None, generator).apply()

    @torch.no_grad()
    def swap(self, learned: Learned) -> None:
        """Become what was learned, whole or not at all."""
        with uninterrupted():
            self.assignments.replace(learned.pointers)
            self.become(learned)
            self.look_up.forget()  # its plan holds the old pointers

    def become(self, learned: Learned) -> None:
        """Write the rows and hash functions that were learned; the codebook keeps its memory."""
        self.codebook.grad = None  # it belonged to the old rows
        self.codebook.copy_(learned.tables.flatten(0, 2))
        self.helper.seeds.copy_(learned.helper.seeds)

    @property
    def start_variance(self) -> float:
        """The variance of every value at the start: of as many rows as are added."""
        if self.init is None:
            return super().start_variance
        return self.slots[1] * (1.0 if self.init == "paper" else output_variance(self.embedding_dim))

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Options) -> Shapes:
        shape = cls.shape_of(embedding_dim, arguments)
        pointers = num_embeddings, shape.num_columns, shape.num_rows
        return Shapes({"codebook": shape.matrix}, shape.num_columns * (shape.num_tables - 1), pointers)
