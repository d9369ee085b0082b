"""DCN-V2: cross layers, which multiply the input by linear functions of it, with a network beside or after them.

Wang et al., "DCN V2: improved deep & cross network and practical lessons for web-scale learning to rank systems"
(WWW 2021), with its low-rank matrices `W = U Vᵀ`; its mixture of experts is not offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cce.checks import check_choice, check_range
from cce.models.network import ConcatenatingModel, check_hidden, make_linear, make_network

if TYPE_CHECKING:
    from cce.collection import EmbeddingCollection
    from cce.schema import Batch, Schema

STRUCTURES = ("parallel", "stacked")


class CrossLayer(nn.Module):
    """`x₀ ⊙ (W x + b) + x`; with a rank, `W` is a product of two narrow matrices."""

    def __init__(self, size: int, low_rank: int | None, generator: torch.Generator | None) -> None:
        super().__init__()
        self.narrow = None
        if low_rank is not None:
            self.narrow = nn.Linear(size, low_rank, bias=False)
            nn.init.normal_(self.narrow.weight, std=(2 / (size + low_rank)) ** 0.5, generator=generator)
        self.linear = make_linear(size if low_rank is None else low_rank, size, generator)

    def forward(self, first: Tensor, values: Tensor) -> Tensor:
        """The next values `(batch, size)`, from the model's input and the last values."""
        narrow = values if self.narrow is None else self.narrow(values)
        return first * self.linear(narrow) + values  # type: ignore[no-any-return]


class DCNv2(ConcatenatingModel):
    """A batch to logits `(batch)`.

    num_cross_layers: layers `x₀ ⊙ (W x + b) + x` on the vectors and dense values of a row, one after the other.
    low_rank: inner size of the matrices of these layers; None for whole matrices.
    structure: `parallel`, cross layers beside the network, or `stacked`, the network on what they give.
    hidden: sizes of the hidden layers of the network; none for cross layers alone.
    dropout: share of each hidden layer's outputs that are left out at each step of training.
    batch_norm: normalise each hidden layer over the batch, before its ReLU.
    """

    def __init__(
        self,
        schema: Schema,
        tables: EmbeddingCollection,
        *,
        num_cross_layers: int = 3,
        low_rank: int | None = None,
        structure: str = "parallel",
        hidden: Sequence[int] = (400, 400, 400),
        dropout: float = 0.0,
        batch_norm: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(schema, tables)
        check_range("num_cross_layers", num_cross_layers, 1, 2**16)
        check_choice("structure", structure, STRUCTURES)
        check_hidden("hidden", hidden)
        size = self.num_values
        if low_rank is not None:
            check_range("low_rank", low_rank, 1, size + 1)
        self.structure = structure
        self.cross = nn.ModuleList(CrossLayer(size, low_rank, generator) for _ in range(num_cross_layers))
        self.network = make_network(size, hidden, dropout=dropout, batch_norm=batch_norm, generator=generator)
        deep = hidden[-1] if hidden else 0
        self.output = make_linear(size + deep if structure == "parallel" else deep or size, 1, generator)

    def forward(self, batch: Batch) -> Tensor:
        """Logits `(batch)`."""
        first = self.concatenate(batch)
        crossed = first
        for layer in self.cross:
            crossed = layer(first, crossed)
        if self.structure == "stacked":
            return self.output(self.network(crossed)).squeeze(-1)  # type: ignore[no-any-return]
        parts = [crossed, self.network(first)] if len(self.network) else [crossed]
        return self.output(torch.cat(parts, dim=1)).squeeze(-1)  # type: ignore[no-any-return]
