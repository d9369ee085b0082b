"""Tables that train in one form and are served in another: `Finalizable`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from cce.embeddings.base import Embedding

if TYPE_CHECKING:
    import torch
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

    @abstractmethod
    def resize(self, *, num_columns: int | None = None, num_rows: int | None = None) -> None:
        """Choose other sizes of the compact form, which the table must not have yet."""

    @abstractmethod
    def stage(self, *, counts: Tensor | None = None, generator: torch.Generator | None = None) -> Any:
        """Compute the compact form of the rows as they are; `become` lets the table have it."""

    @abstractmethod
    def become(self, compact: Any) -> None:
        """Have the compact form, whole or not at all."""

    def check_not_averaged(self) -> None:
        """Reject an average of models: int8 rows are not averaged, and stand for no step of the average."""
        if self.rows.has_optimizer or self.anchor.is_meta:
            return
        if float(self.anchor.detach()) != self.rows.anchor_value:
            raise ValueError(
                f"int8 rows of {self.rows.name} must be those of one model, got an average (EMA or SWA): rows are not "
                "averaged. Average the network alone, or finalize first."
            )
