"""Tables that learn their H while they train, and what they say after each time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ClusterEvent:
    """What one clustering did.

    `parameters_replaced` says that parameters changed their shape: an optimizer must be made anew.
    """

    num_ids: int  # whose pointers were learned
    num_rows: int  # of each column's codebook
    inertias: tuple[float, ...]  # of each column's k-means on the sample
    moved: float  # share of pointers that name another row than before
    seconds: float
    parameters_replaced: bool


class Clusterable(ABC):
    """A table that can be clustered between two steps of training."""

    @abstractmethod
    def cluster(self, *, generator: torch.Generator | None = None) -> ClusterEvent:
        """Learn H from the table as it is now."""
