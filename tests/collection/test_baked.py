"""Models that take pointers give the vectors of ids, to the bit, whatever the pointers are; and hold none of them."""

import copy

import pytest
import torch
from torch import nn

import cce
from cce.collection import BakedCollection, bake_model, bake_schema, find_words
from cce.indexing import IndexModule
from cce.schema import Feature, Schema

pytestmark = pytest.mark.slow
SIZES = {"user": 900, "day": 7, "item": 500}
SCHEMA = Schema(tuple(Feature(*each) for each in SIZES.items()))
TABLES = {
    "cce": ("cce", {}),
    "cce without helpers": ("cce", {"num_columns": 4, "num_helpers": 0}),
    "cce with a hashed tail": ("cce", {"num_learned": 100}),
    "cce with a shared tail": ("cce", {"num_columns": 4, "num_learned": 100, "share_tail": True}),
    "cce that nothing learns": ("cce", {"num_learned": 0}),
    "cce of sums": ("cce", {"num_columns": 2, "combine": "sum"}),
    "circular cce": ("cce", {"num_columns": 4, "combine": "circular"}),
    "cce that settled": ("cce", {"num_columns": 4, "settle_after": 1}),
    "cce of many rows at first": ("cce", {"num_columns": 4, "first_rows": 40}),
    "pq": ("pq", {}),
    "residual pq": ("pq", {"num_columns": 2, "residual": True}),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def collection(method="cce", options=None, **more):
    tables = cce.EmbeddingCollection(SIZES, 16, method=method, cap=640, options={method: options or {}}, seed=3, **more)
    if method == "cce" and any(table.can_cluster for table in tables.tables.values() if table.method == "cce"):
        tables.cluster(generator=seeded())
    return tables


def baked(tables, ids):
    """The baked collection, and the words of ids `(batch, features)`."""
    schema = bake_schema(tables, SCHEMA)
    words = [find_words(tables, schema, index, column) for index, column in enumerate(ids.unbind(1))]
    return bake_model(nn.Sequential(tables), schema)[0], torch.cat(words, dim=1)


def draw(num_rows=400):
    return torch.stack([torch.randint(0, size, (num_rows,), generator=seeded(size)) for size in SIZES.values()], dim=1)


@pytest.mark.parametrize("name", TABLES)
def test_vectors_of_pointers_are_those_of_ids_to_the_bit(name):
    tables, ids = collection(*TABLES[name]), draw()
    model, words = baked(tables, ids)
    assert isinstance(model, BakedCollection)
    assert torch.equal(model(words), tables(ids))
    assert not any(isinstance(module, IndexModule) for module in model.modules())
    assert sum(p.numel() for p in model.parameters()) == tables.num_params


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_bags_of_pointers_are_pooled_as_bags_of_ids(pooling):
    tables, ids = collection(pooling=pooling), draw(60)
    model, words = baked(tables, ids)
    cuts = torch.tensor([0, 0, 3, 20, 21, 60])  # five bags, one of them empty
    offsets, wide = (
        torch.cat([cuts[:-1] + 60 * column for column in range(each.shape[1])] + [torch.tensor([each.numel()])])
        for each in (ids, words)
    )
    assert torch.equal(model(words.T.flatten(), wide), tables(ids.T.flatten(), offsets))


def test_gradients_and_half_precision_and_copies():
    tables, ids = collection(dtype=torch.bfloat16), draw()
    tables.register_forward_hook(lambda _, __, vectors: vectors.float())
    model, words = baked(tables, ids)
    assert model(words).dtype is torch.float32
    assert torch.equal(copy.deepcopy(model)(words), tables(ids))
    model(words).square().sum().backward()
    tables(ids).square().sum().backward()
    gradient = torch.cat([word.codebook.grad for word in model.tables["user"].word_tables()])
    torch.testing.assert_close(gradient, tables.tables["user"].codebook.grad)


def test_baking_draws_no_random_numbers_and_keeps_the_mode():
    tables, before = collection().eval(), torch.get_rng_state()
    model, _ = baked(tables, draw())
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(module.training for module in model.modules())


def test_pointers_are_told_apart_by_their_checksum():
    tables = collection()
    schema = bake_schema(tables, SCHEMA)
    assert bake_schema(collection(), SCHEMA) == schema
    tables.tables["item"].cluster(generator=seeded(1))
    with pytest.raises(ValueError, match=r"^data must be baked with the pointers of the run, got others for .*'item'"):
        bake_model(tables, schema)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: collection("hash"),
            "^table of feature 'user' must be full or learn pointers, without padding, got .*hash",
        ),
        (
            lambda: collection("pq", padding_idx=3),
            "learn pointers, without padding, got method 'pq' with padding_idx=3",
        ),
        (lambda: collection(unified=True), "^model must have one EmbeddingCollection with .* got a unified one"),
        (lambda: nn.Linear(2, 2), "^model must have one EmbeddingCollection with .* got 0 of them"),
        (
            lambda: cce.EmbeddingCollection(SIZES, 16, method="full"),
            "^a table of the model must learn pointers to be baked, got method 'full'",
        ),
    ],
)
def test_models_that_cannot_be_baked_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        bake_schema(make(), SCHEMA)


def test_inputs_of_another_shape_are_rejected():
    model, words = baked(collection(), draw())
    with pytest.raises(
        ValueError, match=rf"^ids must have shape \(batch, {words.shape[1]}\), as baked, got \(400, 3\)"
    ):
        model(draw())
    with pytest.raises(ValueError, match=r"^model must take ids to be frozen, got one that takes pointers"):
        cce.freeze(model)
