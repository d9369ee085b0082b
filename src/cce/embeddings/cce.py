"""CCE as a run trains it by default: int8 rows while training, then pointers and a codebook, then refits.

While it trains, a table is what `as_codes` makes. When training is done, `fit_where_it_counts` finds the pointers of
frequent ids by weighted k-means of those rows; all other ids share a vector.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cce.checks import check_flag, check_start_scale
from cce.clustering import ClusterSettings, vectors_of
from cce.embeddings.base import MAX_IDS
from cce.embeddings.cluster_step import ClusterStep, Quantized
from cce.embeddings.clusterable import check_clustering
from cce.embeddings.clustered import ClusteredEmbedding, CodebookShape
from cce.embeddings.compositional import piece_shape
from cce.embeddings.options import file_name, optional, rules, whole
from cce.embeddings.quantized import NUM_SHARED, QuantizedEmbedding
from cce.embeddings.rare_ids import with_rare_vector
from cce.embeddings.training_defaults import TrainingDefaults
from cce.indexing import PointerStore, blocks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cce.clustering import Source
    from cce.embeddings.initialization import StartScale

FITTED_AT_A_TIME = 1 << 14  # ids, of another table that this one is fitted to
NUM_ROWS = 256  # of a column; more are no better, and a pointer would take more than a byte
SETTINGS = ClusterSettings(tol=1e-3)


class CCEEmbedding(ClusteredEmbedding):
    """`T[x] = [M_1[h_1(x)] | … | M_c[h_c(x)]]` with learned `h`: columns of `num_rows` rows each, without helpers.

    max_rows: most rows of each column where a budget leaves room for more, be it for the full table, unless that is no
        larger. After refits more rows score worse: rows that few ids share know these ids' labels by heart
        (docs/refit.md).
    num_learned: only ids below it have learned pointers; the rest stay hashed and cost nothing. By default all have.
    share_tail: all ids from `num_learned` on have one vector, the first rows, instead of hashed rows.
    """

    method = "cce"
    option_checks = rules(
        num_rows=whole(1),
        max_rows=optional(whole(1)),
        num_columns=optional(whole(1)),
        num_learned=optional(whole(0, MAX_IDS)),
        share_tail=check_flag,
        start_scale=check_start_scale,
        pointer_file=optional(file_name),
    )

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_rows: int,
        max_rows: int | None = None,
        num_columns: int | None = None,
        num_learned: int | None = None,
        share_tail: bool = False,
        settings: ClusterSettings | None = None,
        pointer_file: Path | str | None = None,
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_embeddings,
            embedding_dim,
            num_rows=num_rows,
            num_columns=num_columns,
            num_learned=num_learned,
            settings=SETTINGS if settings is None else settings,
            pointer_file=pointer_file,
            padding_idx=padding_idx,
            sparse=sparse,
            start_scale=start_scale,
            generator=generator,
            device=device,
            dtype=dtype,
        )
        if max_rows is not None and num_rows > max_rows:
            raise ValueError(f"num_rows must be at most max_rows={max_rows}, got {num_rows}.")
        self.assignments.share_tail = share_tail

    @classmethod
    def shape_of(cls, embedding_dim: int, arguments: Mapping[str, Any]) -> CodebookShape:
        """One table for each column."""
        num_columns, width = piece_shape(embedding_dim, arguments["num_columns"])
        return CodebookShape(num_columns, 1, arguments["num_rows"], width)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The most rows within the budget, or `max_rows`."""
        sizes = super().size_for_budget(num_embeddings, embedding_dim, num_params, options)
        return {"num_rows": min(sizes["num_rows"], options["max_rows"] or sizes["num_rows"])}

    def step(self, source: Source, generator: torch.Generator | None) -> ClusterStep:
        """A clustering after which ids without pointers share a vector, if they are to."""
        return SharedTailStep(self, source, generator)

    @torch.no_grad()
    def fit_where_it_counts(self, source: Source, counts: Tensor, *, generator: torch.Generator | None = None) -> None:
        """The same, with ids weighed by their counts; those that were never seen are like the rare ones."""
        check_clustering(self, counts, self.num_embeddings, generator)
        num_learned, counts = self.assignments.num_learned, counts.cpu()
        source = with_rare_vector(source, counts, num_learned, share_tail=self.assignments.share_tail)
        settings = replace(self.settings, weighted=True, block_size=min(self.settings.block_size, FITTED_AT_A_TIME))
        SharedTailStep(self, source, generator, settings=settings).stage(counts[:num_learned]).apply()

    def as_codes(self, bits: int, *, generator: torch.Generator | None = None) -> QuantizedEmbedding | None:
        """Codes of the ids that learn pointers, from the same start; the others share a row if they share a vector."""
        if not self.can_cluster:
            return None
        return QuantizedEmbedding(
            self.num_embeddings,
            self.embedding_dim,
            **_code_rows(self.assignments.num_learned, share_tail=self.assignments.share_tail),
            bits=bits,
            padding_idx=self.padding_idx,
            start_scale=self.start_scale,
            generator=generator,
            device=self.codebook.device,
            dtype=self.codebook.dtype,
        )

    @classmethod
    def codes_nbytes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any], bits: int) -> int:
        """Bytes of what `as_codes` makes."""
        rows = _code_rows(arguments["num_learned"], share_tail=arguments["share_tail"])
        options = QuantizedEmbedding.complete_options(rows | {"bits": bits})
        return QuantizedEmbedding.footprint(num_embeddings, embedding_dim, options).nbytes

    @classmethod
    def training_defaults(cls, preset: str = "tuned") -> TrainingDefaults:
        """Codes of 8 bits, then refits; ids that are seen once say too little of themselves, and share a vector."""
        del preset
        options = {"share_tail": True, "start_scale": "dlrm", "max_rows": NUM_ROWS}
        return TrainingDefaults(options, num_rows=NUM_ROWS, min_count=2, code_bits=8, refits=5)


class SharedTailStep(ClusterStep):
    """A cluster step after which ids without pointers share a vector, if the table says so."""

    def learn(self, counts: Tensor | None) -> Quantized:
        """Codebooks whose first rows are nearest to the vector that those ids share."""
        quantized = self.quantize(counts)
        if not self.table.assignments.share_tail:
            return quantized
        return _with_tail_first(quantized, self.tail_vector())

    def tail_vector(self) -> Tensor:
        """The vector that ids without pointers share, or none `(0, embedding_dim)`."""
        num_learned = self.table.assignments.num_learned
        first = [num_learned] if num_learned < self.table.num_embeddings else []
        return vectors_of(self.source, torch.tensor(first, dtype=torch.int64), self.table.embedding_dim)


def _with_tail_first(quantized: Quantized, tail: Tensor) -> Quantized:
    """The same, with the rows that are nearest to a vector, if there is one, first in their columns."""
    codebooks, old = quantized.codebooks.clone(), quantized.pointers
    if not len(tail):
        return quantized
    nearest = (codebooks - tail.to(codebooks).view(len(codebooks), 1, -1)).square().sum(2).argmin(1)  # (num_columns)
    columns = torch.arange(len(codebooks), device=codebooks.device)
    firsts = codebooks[:, 0].clone()
    codebooks[:, 0], codebooks[columns, nearest] = codebooks[columns, nearest].clone(), firsts
    pointers, nearest = PointerStore(old.num_ids, old.num_columns, old.num_rows), nearest.cpu()
    for ids in blocks(old.num_ids):
        rows = old.read(ids)
        swapped = torch.where(rows == nearest, 0, torch.where(rows == 0, nearest, rows))
        pointers.write(int(ids[0]), swapped)
    return Quantized(quantized.sampled, codebooks, pointers, quantized.inertias)


def _code_rows(num_learned: int | None, *, share_tail: bool) -> dict[str, Any]:
    """Own codes for ids that learn pointers; the others share what they share later, or rows by hash."""
    return {"num_learned": num_learned, "num_shared": 1 if share_tail else NUM_SHARED}
