"""How often ids were looked up in training: what frequency-aware clustering needs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from cce.indexing.state import IndexModule

MOST = 2**31 - 1


class IdCounts(IndexModule):
    """A counter for each of the ids below `num_ids`, four bytes each, on the CPU; saved with the table."""

    index_state = ("counts",)
    same_on_all_ranks = False  # each counts the ids that it looks up, until a clustering adds the counts up

    def __init__(self, num_ids: int) -> None:
        super().__init__()
        self.counts = torch.zeros(num_ids, dtype=torch.int32, device="cpu")

    def add(self, ids: Tensor, *, ignored: int | None = None) -> None:
        """Count ids `(n)`; those without a counter, and the one to be ignored, are passed over."""
        if not torch.compiler.is_compiling() and is_functorch_wrapped_tensor(ids):
            return
        ids = ids.cpu()
        known = ids < len(self.counts)
        if ignored is not None:
            known = known & (ids != ignored)
        places = ids.clamp(max=len(self.counts) - 1)
        room = MOST - self.counts.index_select(0, places)  # a counter that is nearly full stays as it is
        self.counts.index_add_(0, places, (known & (room > len(ids))).int())
