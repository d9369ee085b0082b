"""What a run of an algorithm for least squares leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Run:
    """The last table, and how far each was from the best: `excesses[i]` is `‖X(T_i − T*)‖²`, from `T_0` on."""

    table: Tensor  # (num_embeddings, embedding_dim)
    excesses: tuple[float, ...]
    floor: float  # the loss of the best table

    @property
    def losses(self) -> tuple[float, ...]:
        """`‖XT_i − Y‖²`, from `T_0` on."""
        return tuple(excess + self.floor for excess in self.excesses)
