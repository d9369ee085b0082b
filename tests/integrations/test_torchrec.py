"""TorchRec's bags, compressed: the same as its own with the dense tables as weights."""

import warnings

import pytest
import torch

import cce

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torchrec = pytest.importorskip(
        "torchrec", reason="torchrec is not installed: see docs/integrations.md", exc_type=ImportError
    )
    from cce.integrations.torchrec import CompressedEmbeddingBagCollection

pytestmark = pytest.mark.filterwarnings("ignore")


def configs():
    return [
        torchrec.EmbeddingBagConfig(
            name="item_table", embedding_dim=8, num_embeddings=500, feature_names=["seen", "item"]
        ),
        torchrec.EmbeddingBagConfig(
            name="user_table",
            embedding_dim=4,
            num_embeddings=300,
            feature_names=["user"],
            pooling=torchrec.PoolingType.MEAN,
        ),
    ]


def features(weighted):
    lengths = torch.tensor([2, 0, 3, 1, 1, 1, 0, 1, 2])  # three features, three rows, empty bags among them
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(300, (int(lengths.sum()),), generator=g)
    weights = torch.rand(len(ids), generator=g) if weighted else None
    return torchrec.KeyedJaggedTensor(["seen", "item", "user"], ids, lengths=lengths, weights=weights)


@pytest.mark.parametrize("method", ["cce", "hash", "full"])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_equals_torchrecs_own_with_the_dense_tables(method, weighted):
    tables = configs() if not weighted else configs()[:1]
    made = CompressedEmbeddingBagCollection(tables, weighted, method=method, cap=200, seed=0)
    own = torchrec.EmbeddingBagCollection(tables, weighted)
    for name, bag in made.embedding_bags.items():
        own.embedding_bags[name].weight.data.copy_(bag.table.to_dense())
    got, expected = made(features(weighted)), own(features(weighted))
    assert got.keys() == expected.keys()
    assert got.length_per_key() == expected.length_per_key()
    torch.testing.assert_close(got.values(), expected.values())
    got.values().sum().backward()
    assert all(parameter.grad is not None for parameter in made.parameters())


def test_compress_swaps_the_tables_of_an_existing_model():
    model = torch.nn.ModuleDict({"bags": torchrec.EmbeddingBagCollection(configs())})
    cce.compress(model, method="cce", cap=200, min_params=0, seed=0)
    assert model["bags"](features(weighted=False)).values().shape == (3, 20)
    assert cce.summary(model).total.num_params <= 400


def test_two_tables_of_one_name_are_rejected():
    with pytest.raises(ValueError, match="tables must have different names, got 'item_table' twice"):
        CompressedEmbeddingBagCollection([configs()[0], configs()[0]], cap=200)
