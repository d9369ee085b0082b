"""Product quantisation of a trained table: the post-training baseline.

Jégou, Douze and Schmid (2011), see `clustering.quantizers`. `H` has one 1 per column, learned by k-means from a table
that was trained in full. With `residual`, codebooks are full-width and add up (residual quantisation).
"""

from typing import Unpack

import torch
from torch import Tensor

from cce.checks import check_flag
from cce.clustering import ClusterSettings, ProductQuantizer, ResidualQuantizer, checked_settings
from cce.embeddings.base import check_weight
from cce.embeddings.cluster_step import learn_pointers
from cce.embeddings.compositional import piece_shape
from cce.embeddings.linear import LinearEmbedding
from cce.embeddings.options import CommonOptions, Options, optional, rules, whole
from cce.embeddings.sizing import Shapes
from cce.indexing import Assignments, LearnedRows, common_generator


class ProductQuantizedEmbedding(LinearEmbedding):
    """`T[x] = [M_1[p_1(x)] | … | M_c[p_c(x)]]` with stored pointers `p`: random until `from_table` learns them.

    The codebook trains on; the pointers are fixed from then on.
    """

    method = "pq"
    option_checks = rules(num_rows=whole(1), num_columns=optional(whole(1)), residual=check_flag)

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_rows: int,
        num_columns: int | None = None,
        residual: bool = False,
        settings: ClusterSettings | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        options = self.check_options(num_rows=num_rows, num_columns=num_columns, residual=residual)
        num_columns, _ = piece_shape(embedding_dim, num_columns, summed=residual)
        self.residual = residual
        self.settings = checked_settings(settings)
        self.assignments = Assignments(num_embeddings, num_columns, num_rows, device="meta")
        self.make_parameters(options, common)

    def sources(self) -> tuple[int, int, list[LearnedRows]]:
        num_columns, num_rows = self.assignments.num_columns, self.assignments.num_rows
        first_rows = range(0, num_columns * num_rows, num_rows)
        rows = LearnedRows(self.assignments, slots=range(num_columns), first_rows=first_rows)
        return (1, num_columns, [rows]) if self.residual else (num_columns, 1, [rows])

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Quantise `weight`: k-means for the codebooks, the nearest rows for the pointers."""
        check_weight(self, weight)
        kind = ResidualQuantizer if self.residual else ProductQuantizer
        quantizer = kind(self.assignments.num_columns, self.assignments.num_rows, self.settings)
        size, generator = (self.num_embeddings, self.embedding_dim), common_generator(generator)
        _, pointers = learn_pointers(quantizer, weight.__getitem__, size, self.settings, generator)
        self.assignments.replace(pointers)
        self.codebook.copy_(quantizer.codebooks.flatten(0, 1))

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Options) -> Shapes:
        num_columns, width = piece_shape(embedding_dim, arguments["num_columns"], summed=arguments["residual"])
        num_rows = arguments["num_rows"]
        pointers = num_embeddings, num_columns, num_rows
        return Shapes({"codebook": (num_columns * num_rows, width)}, pointers=pointers)
