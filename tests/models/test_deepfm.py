"""DeepFM against the paper's sums over pairs, row by row."""

import pytest
import torch

from cce.models import DeepFM
from helpers.model_rows import batch_of, logits_by_hand, network_by_hand, schema_of, tables_of


def by_hand(model, vectors, dense):
    """First order, all pairs, and the network: `x · v` is the vector of a dense feature."""
    fields = (
        [*vectors, *(value * vector for value, vector in zip(dense, model.dense_vectors, strict=True))]
        if len(dense)
        else vectors
    )
    linear = sum(weight @ field for weight, field in zip(model.first_order, fields, strict=True))
    pairs = sum(fields[i] @ fields[j] for i in range(len(fields)) for j in range(i))
    return linear + pairs + network_by_hand(model.network, torch.cat(fields), last_is_linear=True)[0]


@pytest.mark.parametrize("multi_hot", [False, True])
@pytest.mark.parametrize("num_dense", [0, 2])
def test_is_its_formula(num_dense, multi_hot):
    schema = schema_of(num_dense=num_dense, multi_hot=multi_hot)
    model, batch = DeepFM(schema, tables_of(schema), hidden=(8, 3)), batch_of(schema)
    torch.nn.init.normal_(model.first_order)  # it starts at zero
    torch.testing.assert_close(model(batch), logits_by_hand(by_hand, model, batch))
