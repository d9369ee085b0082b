"""How often a table was clustered: a number that is saved with it."""

from __future__ import annotations

import torch

from cce.indexing import IndexModule


class EventCount(IndexModule):
    """The number of clusterings of a table so far."""

    index_state = ("count",)

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.zeros(1, dtype=torch.int32, device="cpu")

    def __int__(self) -> int:
        return int(self.count)

    def add_one(self) -> None:
        """Count a clustering."""
        self.count += 1
