"""DLRM: dense features through a network, dot products of all pairs of vectors, and a network on top.

Naumov et al., "Deep learning recommendation model for personalization and recommendation systems" (2019). Sizes are
those of the CCE paper. The authors' top network takes the vector of the dense features beside the dot products; what
makes a single vector good or bad reaches it through products alone, unless `concatenate` shows it the vectors.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cce.checks import check_flag
from cce.collection import EmbeddingCollection
from cce.models.network import check_dense, check_hidden, check_parts, check_start, make_network
from cce.schema import Batch, Schema


class DLRM(nn.Module):
    """A batch to logits `(batch)`.

    bottom: hidden sizes of the network of dense features, whose output is one more vector of `embedding_dim` values.
    top: hidden sizes of the network that takes this vector and the dot products of all pairs to the logit.

    dropout: share of each hidden layer's outputs that are left out at each step of training.
    batch_norm: normalise each hidden layer over the batch, before its ReLU.
    concatenate: let the top network take the vectors themselves as well, one after the other.

    Without dense features there is no bottom network, and the dot products are all that the top takes: no id is good
    or bad by itself. `concatenate=True` mends it; `deepfm`, `dcnv2` and `mlp` see the vectors anyway.
    """

    def __init__(
        self,
        schema: Schema,
        tables: EmbeddingCollection,
        *,
        bottom: Sequence[int] = (512, 256, 64),
        top: Sequence[int] = (512, 256),
        dropout: float = 0.0,
        batch_norm: bool = False,
        concatenate: bool = False,
    ) -> None:
        super().__init__()
        check_parts(schema, tables)
        check_flag("concatenate", concatenate)
        check_hidden("bottom", bottom)
        check_hidden("top", top)
        num_dense, dim = len(schema.dense), tables.embedding_dim
        num_vectors = tables.num_features + (num_dense > 0)
        if num_vectors < 2 and not concatenate:
            raise ValueError(
                "model 'dlrm' needs two features, or one and dense features, for a dot product, or concatenate=true; "
                "got one feature."
            )
        if not (num_dense or concatenate):
            check_start("dlrm", tables)
        self.tables, self.num_dense, self.concatenate = tables, num_dense, concatenate
        options: dict[str, Any] = {"dropout": dropout, "batch_norm": batch_norm, "random_bias": True}
        self.bottom = None
        if num_dense:
            self.bottom = make_network(num_dense, bottom, dim, **options).append(nn.ReLU())
        num_pairs = num_vectors * (num_vectors - 1) // 2
        num_inputs = num_pairs + (dim if num_dense else 0) + (tables.num_features * dim if concatenate else 0)
        self.top = make_network(num_inputs, top, 1, **options)
        first, second = torch.tril_indices(num_vectors, num_vectors, -1)
        self.register_buffer("pairs", first * num_vectors + second, persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        vectors = self.tables(batch.ids, batch.offsets)  # (B, F, D)
        parts = [vectors.flatten(1)] if self.concatenate else []
        if self.bottom is not None:
            check_dense(batch.dense, self.num_dense)
            dense = self.bottom(batch.dense)
            vectors = torch.cat([dense.unsqueeze(1), vectors.to(dense.dtype)], dim=1)
            parts.insert(0, dense)
        products = (vectors @ vectors.transpose(1, 2)).flatten(1)  # (B, V · V)
        parts.append(products.index_select(1, self.pairs))
        return self.top(torch.cat(parts, dim=1)).squeeze(-1)  # type: ignore[no-any-return]
