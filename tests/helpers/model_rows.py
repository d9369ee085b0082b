"""Small schemas, tables and batches for tests of models, and their vectors row by row."""

import torch

from cce.collection import EmbeddingCollection
from cce.schema import Batch, Feature, Schema

SIZES = {"a": 9, "b": 7, "c": 5}


def schema_of(num_features=3, num_dense=2, *, multi_hot=False):
    """`c` is multi-hot if any is; dense columns are `x` and `y`."""
    names = list(SIZES)[:num_features]
    features = tuple(Feature(name, SIZES[name], multi_hot=multi_hot and name == names[-1]) for name in names)
    return Schema(features, ("x", "y")[:num_dense])


def tables_of(schema, dim=4, **options):
    return EmbeddingCollection(schema.vocabulary_sizes, dim, **({"method": "full", "seed": 0} | options))


def batch_of(schema, rows=6, seed=1):
    g = torch.Generator().manual_seed(seed)
    sizes = list(schema.vocabulary_sizes.values())
    ids = torch.stack([torch.randint(size, (rows,), generator=g) for size in sizes], dim=1)
    dense, labels = torch.randn(rows, len(schema.dense), generator=g), torch.ones(rows)
    if not schema.is_multi_hot:
        return Batch(dense, ids, labels)
    lengths = torch.ones(len(sizes), rows, dtype=torch.int64)
    lengths[-1] = torch.arange(rows) % 3  # empty bags, too
    last = torch.randint(sizes[-1], (int(lengths[-1].sum()),), generator=g)
    flat = torch.cat([ids[:, :-1].T.reshape(-1), last])
    return Batch(
        dense, flat, labels, offsets=torch.cat([torch.zeros(1, dtype=torch.int64), lengths.flatten().cumsum(0)])
    )


def vectors_of(tables, batch, row):
    """The vectors of one row, one by one, bags summed."""
    found = []
    for index, table in enumerate(tables.tables.values()):
        if batch.offsets is None:
            ids = batch.ids[row, index : index + 1]
        else:
            start = index * len(batch) + row
            ids = batch.ids[batch.offsets[start] : batch.offsets[start + 1]]
        found.append(table.to_dense(ids).sum(0))
    return found


def layers_of(network):
    """Weights and biases of its linear layers."""
    return [(layer.weight, layer.bias) for layer in network if isinstance(layer, torch.nn.Linear)]


def network_by_hand(network, value, *, last_is_linear):
    """One row through linear layers, each followed by a ReLU but the last."""
    layers = layers_of(network)
    for index, (weight, bias) in enumerate(layers, start=1):
        value = weight @ value + bias
        value = value if last_is_linear and index == len(layers) else value.clamp(min=0)
    return value


def logits_by_hand(formula, model, batch):
    return torch.stack(
        [formula(model, vectors_of(model.tables, batch, row), batch.dense[row]) for row in range(len(batch))]
    )
