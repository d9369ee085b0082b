"""DCN-V2 against the paper's recursion, row by row."""

import pytest
import torch

from cce.models import DCNv2
from helpers.model_rows import batch_of, logits_by_hand, network_by_hand, schema_of, tables_of


def by_hand(model, vectors, dense):
    first = torch.cat([*vectors, dense])
    crossed = first
    for layer in model.cross:
        crossed = first * (layer.linear.weight @ crossed + layer.linear.bias) + crossed
    deep = network_by_hand(model.network, first, last_is_linear=False) if len(model.network) else first[:0]
    return (model.output.weight @ torch.cat([crossed, deep]) + model.output.bias)[0]


@pytest.mark.parametrize("num_dense", [0, 2])
@pytest.mark.parametrize("options", [{}, {"hidden": ()}], ids=str)
def test_is_its_formula(num_dense, options):
    schema = schema_of(num_dense=num_dense, multi_hot=num_dense == 2)
    model, batch = (
        DCNv2(schema, tables_of(schema), **({"hidden": (8, 3), "num_cross_layers": 2} | options)),
        batch_of(schema),
    )
    for layer in model.cross:
        torch.nn.init.normal_(layer.linear.bias)  # it starts at zero
    torch.testing.assert_close(model(batch), logits_by_hand(by_hand, model, batch))
