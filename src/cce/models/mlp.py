"""A network on concatenated vectors: the plain deep model that others are compared with.

The deep part of Covington et al., "Deep neural networks for YouTube recommendations" (RecSys 2016), and of Cheng et
al., "Wide & deep learning for recommender systems" (DLRS 2016). Zhu et al., "Open benchmarking for click-through rate
prediction" (CIKM 2021) find it near the best of 24 models (there: DNN).
"""

from collections.abc import Sequence

from torch import Tensor

from cce.collection import EmbeddingCollection
from cce.models.network import ConcatenatingModel, check_hidden, make_network
from cce.schema import Batch, Schema


class MLP(ConcatenatingModel):
    """A batch to logits `(batch)`: a network on all vectors and dense values of a row, one after the other.

    hidden: sizes of the hidden layers.
    dropout: share of each hidden layer's outputs that are left out at each step of training.
    batch_norm: normalise each hidden layer over the batch, before its ReLU.
    """

    def __init__(
        self,
        schema: Schema,
        tables: EmbeddingCollection,
        *,
        hidden: Sequence[int] = (400, 400, 400),
        dropout: float = 0.0,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(schema, tables)
        check_hidden("hidden", hidden)
        self.network = make_network(self.num_values, hidden, 1, dropout=dropout, batch_norm=batch_norm)

    def forward(self, batch: Batch) -> Tensor:
        return self.network(self.concatenate(batch)).squeeze(-1)  # type: ignore[no-any-return]
