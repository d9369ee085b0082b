"""The network on concatenated vectors against its formula, row by row."""

import pytest
import torch

from cce.models import MLP
from helpers.model_rows import batch_of, layers_of, logits_by_hand, network_by_hand, schema_of, tables_of


def by_hand(model, vectors, dense):
    return network_by_hand(model.network, torch.cat([*vectors, dense]), last_is_linear=True)[0]


@pytest.mark.parametrize("multi_hot", [False, True])
@pytest.mark.parametrize("num_dense", [0, 2])
def test_is_its_formula(num_dense, multi_hot):
    schema = schema_of(num_dense=num_dense, multi_hot=multi_hot)
    model, batch = MLP(schema, tables_of(schema), hidden=(8, 3)), batch_of(schema)
    torch.testing.assert_close(model(batch), logits_by_hand(by_hand, model, batch))


def test_without_hidden_layers_it_is_a_logistic_regression():
    schema = schema_of()
    model, batch = MLP(schema, tables_of(schema), hidden=()), batch_of(schema)
    assert [tuple(weight.shape) for weight, _ in layers_of(model.network)] == [(1, 14)]
    torch.testing.assert_close(model(batch), logits_by_hand(by_hand, model, batch))
