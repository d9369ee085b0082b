"""DLRM against its formula, written out row by row."""

import pytest
import torch
from torch.nn.functional import relu

from cce.collection import EmbeddingCollection
from cce.models import DLRM
from cce.schema import Batch, Feature, Schema

FEATURES = (Feature("a", 9), Feature("b", 7), Feature("c", 5))


def made(dense=("x", "y"), features=FEATURES, **options):
    schema = Schema(features, dense)
    tables = EmbeddingCollection(schema.vocabulary_sizes, 4, method="full", seed=0)
    sizes = {"bottom": (6,), "top": (8, 3)} | options
    torch.manual_seed(0)
    return DLRM(schema, tables, **sizes)


def batch(rows=6, num_dense=2, num_features=3):
    g = torch.Generator().manual_seed(1)
    ids = torch.randint(5, (rows, num_features), generator=g)
    return Batch(torch.randn(rows, num_dense, generator=g), ids, torch.zeros(rows))


def layers(network):
    return [(layer.weight, layer.bias) for layer in network if hasattr(layer, "weight")]


def by_hand(model, dense, ids):
    """One row: bottom network with ReLUs, all pairs i > j, top network without one at the end."""
    vectors = [table.to_dense(ids[i : i + 1])[0] for i, table in enumerate(model.tables.tables.values())]
    looked_up, inputs = vectors, []
    if model.bottom is not None:
        for weight, bias in layers(model.bottom):
            dense = relu(weight @ dense + bias)
        vectors, inputs = [dense, *vectors], [dense]
    pairs = [vectors[i] @ vectors[j] for i in range(len(vectors)) for j in range(i)]
    inputs = [*inputs, *looked_up] if model.concatenate else inputs
    value = torch.cat([*inputs, torch.stack(pairs)])
    for index, (weight, bias) in enumerate(layers(model.top), start=1):
        value = weight @ value + bias
        value = relu(value) if index < len(layers(model.top)) else value
    return value[0]


@pytest.mark.parametrize("concatenate", [False, True])
@pytest.mark.parametrize("num_dense", [0, 2])
def test_is_its_formula(num_dense, concatenate):
    model, some = made(("x", "y")[:num_dense], concatenate=concatenate), batch(num_dense=num_dense)
    expected = torch.stack([by_hand(model, dense, ids) for dense, ids in zip(some.dense, some.ids, strict=True)])
    torch.testing.assert_close(model(some), expected)


def test_the_sizes_of_the_paper_are_the_default():
    schema = Schema(tuple(Feature(f"c{i}", 5) for i in range(26)), tuple(f"d{i}" for i in range(13)))
    model = DLRM(schema, EmbeddingCollection(schema.vocabulary_sizes, 16, method="full", seed=0))
    assert [tuple(weight.shape) for weight, _ in layers(model.bottom)] == [(512, 13), (256, 512), (64, 256), (16, 64)]
    assert [tuple(weight.shape) for weight, _ in layers(model.top)] == [(512, 16 + 27 * 26 // 2), (256, 512), (1, 256)]


def test_no_rows_give_no_logits_and_gradients_of_zero():
    model = made()
    logits = model(batch(rows=0))
    assert logits.shape == (0,)
    logits.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_half_precision_is_near():
    model, some = made(), batch()
    with torch.autocast("cpu", torch.bfloat16):
        half = model(some)
    assert half.dtype is torch.bfloat16
    torch.testing.assert_close(half.float(), model(some), atol=0.05, rtol=0.05)


def test_without_dense_features_only_concatenation_shows_what_an_id_is_worth_by_itself():
    """Turn all vectors by the same rotation: dot products, and so logits, stay what they were."""
    turn = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(2)))[0]
    for concatenate in (False, True):
        model, some = made((), concatenate=concatenate), batch(num_dense=0)
        before = model(some)
        with torch.no_grad():
            for table in model.tables.tables.values():
                table.codebook.copy_(table.codebook @ turn)
        assert torch.allclose(model(some), before, atol=1e-5) is not concatenate
