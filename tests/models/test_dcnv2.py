"""DCN-V2 against the paper's recursion, row by row."""

import pytest
import torch

from cce.models import DCNv2
from helpers.model_rows import batch_of, logits_by_hand, network_by_hand, schema_of, tables_of


def by_hand(model, vectors, dense):
    first = torch.cat([*vectors, dense])
    crossed = first
    for layer in model.cross:
        matrix = layer.linear.weight if layer.narrow is None else layer.linear.weight @ layer.narrow.weight
        crossed = first * (matrix @ crossed + layer.linear.bias) + crossed
    if model.structure == "stacked":
        return (
            model.output.weight @ network_by_hand(model.network, crossed, last_is_linear=False) + model.output.bias
        )[0]
    deep = network_by_hand(model.network, first, last_is_linear=False) if len(model.network) else first[:0]
    return (model.output.weight @ torch.cat([crossed, deep]) + model.output.bias)[0]


@pytest.mark.parametrize("num_dense", [0, 2])
@pytest.mark.parametrize(
    "options",
    [{}, {"low_rank": 3}, {"structure": "stacked"}, {"hidden": ()}, {"hidden": (), "structure": "stacked"}],
    ids=str,
)
def test_is_its_formula(num_dense, options):
    schema = schema_of(num_dense=num_dense, multi_hot=num_dense == 2)
    model, batch = (
        DCNv2(schema, tables_of(schema), **({"hidden": (8, 3), "num_cross_layers": 2} | options)),
        batch_of(schema),
    )
    for layer in model.cross:
        torch.nn.init.normal_(layer.linear.bias)  # it starts at zero
    torch.testing.assert_close(model(batch), logits_by_hand(by_hand, model, batch))


def test_a_rank_makes_cross_layers_smaller():
    schema = schema_of(num_dense=0)
    whole, narrow = (DCNv2(schema, tables_of(schema), low_rank=rank).cross[0] for rank in (None, 2))
    assert sum(p.numel() for p in whole.parameters()) == 12 * 12 + 12
    assert sum(p.numel() for p in narrow.parameters()) == 2 * 12 * 2 + 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"structure": "crashed"}, "structure must be one of parallel, stacked; got 'crashed'"),
        ({"low_rank": 15}, r"low_rank must lie in \[1, 15\), got 15"),
        ({"num_cross_layers": 0}, r"num_cross_layers must lie in \[1, 2\*\*16\), got 0"),
    ],
)
def test_what_cannot_be_is_rejected(options, message):
    schema = schema_of()
    with pytest.raises(ValueError, match=message):
        DCNv2(schema, tables_of(schema), **options)
