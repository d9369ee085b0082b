"""Product quantisation of a trained table: the post-training baseline.

Jégou, Douze and Schmid (2011), see `clustering.quantizers`. `H` has one 1 per column, learned by k-means from a table
that was trained in full. With `residual`, codebooks are full-width and add up (residual quantisation).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cce.checks import check_flag
from cce.clustering import (
    ClusterSettings,
    ProductQuantizer,
    ResidualQuantizer,
    Sample,
    Source,
    checked_settings,
    draw_sample,
    encode_all,
)
from cce.embeddings.base import check_budget, check_weight
from cce.embeddings.compositional import piece_shape
from cce.embeddings.initialization import StartScale, new_parameter, normal_
from cce.embeddings.linear import LinearEmbedding
from cce.embeddings.options import optional, rules, whole
from cce.embeddings.shapes import Shapes
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
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse, start_scale=start_scale)
        self.check_options(num_rows=num_rows, num_columns=num_columns, residual=residual)
        num_columns, _ = piece_shape(embedding_dim, num_columns, summed=residual)
        self.residual = residual
        self.settings = checked_settings(settings)
        self.assignments = Assignments(num_embeddings, num_columns, num_rows, device="meta")
        sizes = {"num_rows": num_rows, "num_columns": num_columns, "residual": residual}
        shape = self.shapes(num_embeddings, embedding_dim, sizes).parameters["codebook"]
        self.codebook = new_parameter(shape, device=device, dtype=dtype)
        self.reset_parameters(generator)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Variances of independent terms add up."""
        num_terms = self.assignments.num_columns if self.residual else 1
        normal_(self.codebook, variance=self.start_variance / num_terms, generator=generator)

    def sources(self) -> tuple[int, int, list[LearnedRows]]:
        """One row of each codebook: side by side, or summed when residual."""
        num_columns, num_rows = self.assignments.num_columns, self.assignments.num_rows
        first_rows = range(0, num_columns * num_rows, num_rows)
        rows = LearnedRows(self.assignments, slots=range(num_columns), first_rows=first_rows)
        return (1, num_columns, [rows]) if self.residual else (num_columns, 1, [rows])

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Quantise `weight`: k-means for the codebooks, the nearest rows for the pointers."""
        check_weight(self, weight)
        self._fit(weight.__getitem__, None, generator)

    @torch.no_grad()
    def fit_where_it_counts(self, source: Source, counts: Tensor, *, generator: torch.Generator | None = None) -> None:
        """The same, with counts for settings that sample or weigh by them; others leave all ids alike, as papers do."""
        self._fit(source, counts if self.settings.needs_counts else None, generator)

    def _fit(self, source: Source, counts: Tensor | None, generator: torch.Generator | None) -> None:
        generator = common_generator(generator)
        kind = ResidualQuantizer if self.residual else ProductQuantizer
        quantizer = kind(self.assignments.num_columns, self.assignments.num_rows, self.settings)
        size, settings = (self.num_embeddings, quantizer.num_rows), self.settings
        ids, weights = draw_sample(*size, settings, counts=counts, generator=generator)
        quantizer.fit(Sample(source, ids, self.embedding_dim, weights), generator)
        pointers = encode_all(quantizer, source, self.num_embeddings, self.embedding_dim)
        self.assignments.replace(self.assignments.stage(pointers))
        self.codebook.copy_(quantizer.codebooks.flatten(0, 1))

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """The codebooks; pointers of every id, and the hash functions that they start from."""
        num_columns, width = piece_shape(embedding_dim, arguments["num_columns"], summed=arguments["residual"])
        num_rows = arguments["num_rows"]
        shape = num_columns * num_rows, width
        return Shapes({"codebook": shape}, num_hashes=num_columns, pointers=(num_embeddings, num_columns, num_rows))

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Size every codebook to the most rows within the budget."""
        del num_embeddings
        num_columns, width = piece_shape(embedding_dim, options["num_columns"], summed=options["residual"])
        check_budget(cls.method, num_params, num_columns * width)
        return {"num_rows": num_params // (num_columns * width)}
