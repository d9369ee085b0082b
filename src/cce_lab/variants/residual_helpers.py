"""A smarter start of the helpers (appendix, "What didn't work": "Smarter initialization after clustering")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cce.clustering import piece_size
from cce.embeddings import ClusteredEmbedding
from cce.indexing import blocks

if TYPE_CHECKING:
    from cce.clustering import Source
    from cce.embeddings import Learned


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
