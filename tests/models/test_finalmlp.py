"""FinalMLP against the paper's gates and bilinear heads, row by row."""

import pytest
import torch

from cce.models import FinalMLP
from helpers.model_rows import batch_of, logits_by_hand, network_by_hand, schema_of, tables_of

SIZES = {"first": (8, 6), "second": (4,), "num_heads": 2, "gate_hidden": (5,)}


def by_hand(model, vectors, dense, contexts=((), ())):
    values = torch.cat([*vectors, dense])
    named = dict(zip("abc", vectors, strict=True)) | {
        name: dense[i : i + 1] for i, name in enumerate("xy"[: len(dense)])
    }
    outputs = []
    for index, network in enumerate(model.networks):
        inputs = values
        if len(model.gates):
            gate = model.gates[index]
            seen = torch.cat([named[name] for name in contexts[index]]) if contexts[index] else gate.learned[0]
            inputs = values * 2 * torch.sigmoid(network_by_hand(gate.network, seen, last_is_linear=True))
        outputs.append(network_by_hand(network, inputs, last_is_linear=False))
    one, two = outputs
    total = (model.linear.weight @ torch.cat([one, two]) + model.linear.bias)[0]
    for head, matrix in enumerate(model.bilinear):
        rows, columns = matrix.shape
        total = total + one[head * rows : (head + 1) * rows] @ matrix @ two[head * columns : (head + 1) * columns]
    return total


@pytest.mark.parametrize("multi_hot", [False, True])
@pytest.mark.parametrize("num_dense", [0, 2])
@pytest.mark.parametrize("gates", [False, True])
def test_is_its_formula(gates, num_dense, multi_hot):
    schema = schema_of(num_dense=num_dense, multi_hot=multi_hot)
    model, batch = FinalMLP(schema, tables_of(schema), gates=gates, **SIZES), batch_of(schema)
    torch.testing.assert_close(model(batch), logits_by_hand(by_hand, model, batch))


def test_gates_see_the_columns_that_are_named():
    schema, contexts = schema_of(), (["x", "b"], [])
    model, batch = FinalMLP(schema, tables_of(schema), contexts=contexts, **SIZES), batch_of(schema)
    expected = logits_by_hand(lambda *parts: by_hand(*parts, contexts=contexts), model, batch)
    torch.testing.assert_close(model(batch), expected)


def test_each_network_may_have_its_own_dropout():
    schema = schema_of()
    model = FinalMLP(schema, tables_of(schema), dropout=[0.2, 0.3], **SIZES)
    shares = [{layer.p for layer in network if isinstance(layer, torch.nn.Dropout)} for network in model.networks]
    assert shares == [{0.2}, {0.3}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 4}, r"first must end in a multiple of num_heads=4, got \[8, 6\]"),
        ({"second": ()}, r"second must end in a multiple of num_heads=2, got \[\]"),
        ({"contexts": [["z"], []]}, "contexts must name columns of the data set, a, b, c, x, y; got 'z'"),
        ({"contexts": [["a"]]}, r"contexts and dropout must be of two networks, got \[\['a'\]\] and 0.0"),
        ({"dropout": [0.1]}, r"must be of two networks, got \(\(\), \(\)\) and \[0.1\]"),
    ],
)
def test_what_cannot_be_is_rejected(options, message):
    schema = schema_of()
    with pytest.raises(ValueError, match=message):
        FinalMLP(schema, tables_of(schema), **(SIZES | options))
