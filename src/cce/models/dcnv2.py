"""DCN-V2: cross layers, which multiply the input by linear functions of it, with a network beside them.

Wang et al., "DCN V2: improved deep & cross network and practical lessons for web-scale learning to rank systems"
(WWW 2021), in its parallel structure with whole matrices; low ranks, experts and stacking are not offered.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cce.checks import check_range
from cce.collection import EmbeddingCollection
from cce.models.network import ConcatenatingModel, check_hidden, make_linear, make_network
from cce.schema import Batch, Schema


class CrossLayer(nn.Module):
    """`x₀ ⊙ (W x + b) + x`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = make_linear(size, size)

    def forward(self, first: Tensor, values: Tensor) -> Tensor:
        """The next values `(batch, size)`, from the model's input and the last values."""
        return first * self.linear(values) + values  # type: ignore[no-any-return]


class DCNv2(ConcatenatingModel):
    """A batch to logits `(batch)`.

    num_cross_layers: layers `x₀ ⊙ (W x + b) + x` on the vectors and dense values of a row, one after the other.
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
        hidden: Sequence[int] = (400, 400, 400),
        dropout: float = 0.0,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(schema, tables)
        check_range("num_cross_layers", num_cross_layers, 1, 2**16)
        check_hidden("hidden", hidden)
        size = self.num_values
        self.cross = nn.ModuleList(CrossLayer(size) for _ in range(num_cross_layers))
        self.network = make_network(size, hidden, dropout=dropout, batch_norm=batch_norm)
        self.output = make_linear(size + (hidden[-1] if hidden else 0), 1)

    def forward(self, batch: Batch) -> Tensor:
        first = self.concatenate(batch)
        crossed = first
        for layer in self.cross:
            crossed = layer(first, crossed)
        parts = [crossed, self.network(first)] if len(self.network) else [crossed]
        return self.output(torch.cat(parts, dim=1)).squeeze(-1)  # type: ignore[no-any-return]
