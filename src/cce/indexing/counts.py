"""How often ids were looked up in training: what frequency-aware clustering needs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from cce.indexing.facts import FactModule


class IdCounts(FactModule):
    """A counter for each of the ids below `num_ids`, four bytes each, on the CPU; saved with the table."""

    facts = ("counts",)

    def __init__(self, num_ids: int) -> None:
        super().__init__()
        self.counts = torch.zeros(num_ids, dtype=torch.int32, device="cpu")

    def add(self, ids: Tensor) -> None:
        """Count ids `(n)`; those without a counter are passed over."""
        if is_functorch_wrapped_tensor(ids):
            return
        ids = ids.cpu()
        known = ids < len(self.counts)
        self.counts.index_add_(0, ids.clamp(max=len(self.counts) - 1), known.int())
