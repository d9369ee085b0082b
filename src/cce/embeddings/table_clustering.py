"""Any table, clustered into a CCE table: fine codes first, coarse ones later.

A table whose ids are free to go where they like, such as `quantized`, says better which ids belong together than one in
which they share rows from the start. Its vectors are read block by block: the table is never in memory as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cce.checks import check_type
from cce.embeddings.base import Embedding
from cce.embeddings.cce import CCEEmbedding

if TYPE_CHECKING:
    from torch import Tensor

    from cce.clustering import ClusterSettings


@torch.no_grad()
def cluster_table(
    table: Embedding,
    *,
    num_rows: int = 256,
    num_columns: int | None = None,
    num_learned: int | None = None,
    share_tail: bool = False,
    settings: ClusterSettings | None = None,
    counts: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> CCEEmbedding:
    """A `CCEEmbedding` as near to `table` as k-means in each column brings it; `table` stays as it is.

    num_rows: of each column's codebook; with 256 a pointer takes one byte.
    num_learned: ids with pointers; by default all. The others are hashed, and lose what `table` knew of them.
    share_tail: the others have one vector instead, near to their mean, if `counts` are given.
    counts: how often each id occurs: k-means then weighs ids by that, and ids that were never seen are like the others
        without pointers. Settings that are given say themselves whether they sample or weigh by counts.
    """
    check_type("table", table, Embedding, "an embedding table of cce")
    parameter = next(table.parameters())
    clustered = CCEEmbedding(
        table.num_embeddings,
        table.embedding_dim,
        num_rows=num_rows,
        num_columns=num_columns,
        num_learned=num_learned,
        share_tail=share_tail,
        settings=settings,
        padding_idx=table.padding_idx,
        generator=generator,
        device=parameter.device,
        dtype=parameter.dtype,
    )
    if counts is not None and settings is None:
        clustered.fit_where_it_counts(table.to_dense, counts, generator=generator)
    else:
        clustered.step(table.to_dense, generator).stage(counts).apply()
    return clustered
