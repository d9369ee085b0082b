"""Tables that train in one form and are served in another: `Finalizable`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from cce.embeddings.base import Embedding

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cce.embeddings.int8_rows import Int8Rows


class Finalizable(Embedding):
    """A table of int8 rows while it trains, and of something smaller after `finalize`."""

    rows: Int8Rows
    num_columns: int  # of the compact form
    num_rows: int  # of each column of it
    anchor: nn.Parameter  # stands for the rows in an optimizer

    @property
    @abstractmethod
    def is_final(self) -> bool:
        """Whether the table has its compact form."""

    @abstractmethod
    def give_rows(self, counts: Tensor) -> None:
        """Give rows to ids that occur often enough in training, by counts `(num_embeddings,)`, and to no others."""

    def check_not_averaged(self) -> None:
        """Reject an average of models: int8 rows are not averaged, and stand for no step of the average."""
        self.rows.check_not_averaged(self.anchor)
